package middleware_test

import (
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// message is what a request carries in its body.
type message struct {
	x, pad string
	plain  string // the body's bytes, uncompressed
}

// payload is what the handlers bind to.
type payload struct {
	X   string `json:"x" xml:"x" yaml:"x" toml:"x" form:"x" header:"X" uri:"x"`
	Pad string `json:"pad" xml:"pad" yaml:"pad" toml:"pad" form:"pad"`
}

// upload is what a handler binds a multipart form to.
type upload struct {
	X    string                `form:"x"`
	File *multipart.FileHeader `form:"file"`
}

// binder is a way in which handlers read a request, and the bodies it is for.
type binder struct {
	name        string
	contentType string
	write       func(x, pad string) string // as long as x and pad, and a constant
	keyed       bool                       // {body.x} can be taken from it

	read, again reading
	sees        func(message) string // what read and again have to return
	copies      bool                 // both read gin's copy of the body

	nothing   string // what read returns if there is no body
	needsBody bool   // and whether with an error
}

// message returns a body of the size.
func (b binder) message(t *testing.T, size int) message {
	t.Helper()
	if size == 0 {
		return message{}
	}
	m := message{x: "from-body"}
	m.pad = strings.Repeat("p", size-len(b.write(m.x, "")))
	if m.plain = b.write(m.x, m.pad); len(m.plain) != size {
		t.Fatalf("the body has %d bytes; want %d", len(m.plain), size)
	}
	return m
}

// reading reads a request in one way and returns what it says.
type reading func(*gin.Context) (string, error)

var (
	fields = func(m message) string { return m.x + "|" + m.pad }
	whole  = func(m message) string { return m.plain }
	beside = func(from string) func(message) string {
		return func(m message) string { return from + "|" + m.plain }
	}
)

// bind reads with one of gin's methods.
func bind(into func(*gin.Context, any) error) reading {
	return func(c *gin.Context) (string, error) {
		var p payload
		err := into(c, &p)
		return p.X + "|" + p.Pad, err
	}
}

// bindBeside reads something else than the body, and the body as it is.
func bindBeside(into func(*gin.Context, any) error) reading {
	return func(c *gin.Context) (string, error) {
		var p payload
		err := into(c, &p)
		body, bodyErr := c.GetRawData()
		return p.X + "|" + string(body), errors.Join(err, bodyErr)
	}
}

func with(b binding.Binding) func(*gin.Context, any) error {
	return func(c *gin.Context, p any) error { return c.ShouldBindWith(p, b) }
}

func bodyWith(b binding.BindingBody) func(*gin.Context, any) error {
	return func(c *gin.Context, p any) error { return c.ShouldBindBodyWith(p, b) }
}

func readUpload(c *gin.Context) (string, error) {
	var u upload
	if err := c.ShouldBind(&u); err != nil || u.File == nil {
		return u.X + "|", err
	}
	f, err := u.File.Open()
	if err != nil {
		return u.X + "|", err
	}
	content, err := io.ReadAll(f)
	return u.X + "|" + string(content), errors.Join(err, f.Close())
}

func readProtobuf(c *gin.Context) (string, error) {
	var v wrapperspb.StringValue
	err := c.ShouldBindWith(&v, binding.ProtoBuf)
	return v.GetValue(), err
}

func readAll(c *gin.Context) (string, error) {
	body, err := io.ReadAll(c.Request.Body)
	return string(body), err
}

func readRaw(c *gin.Context) (string, error) {
	body, err := c.GetRawData()
	return string(body), err
}

func writeJSON(x, pad string) string { return `{"x":"` + x + `","pad":"` + pad + `"}` }

func writeXML(x, pad string) string { return "<m><x>" + x + "</x><pad>" + pad + "</pad></m>" }

func writeForm(x, pad string) string { return "x=" + x + "&pad=" + pad }

func writeMultipart(x, pad string) string {
	return "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n" + x +
		"\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" + pad + "\r\n--b--\r\n"
}

// writeProtobuf writes a google.protobuf.StringValue, its length as a varint of
// two bytes.
func writeProtobuf(x, pad string) string {
	v := x + "|" + pad
	return "\x0a" + string([]byte{byte(len(v)) | 0x80, byte(len(v) >> 7)}) + v
}

var (
	viaJSON = bind((*gin.Context).ShouldBindJSON)
	viaXML  = bind((*gin.Context).ShouldBindXML)
	viaAny  = bind((*gin.Context).ShouldBind)

	copyOfJSON = bind(bodyWith(binding.JSON))
	copyOfXML  = bind(bodyWith(binding.XML))
)

// With POST, gin's Form takes a value from the query that the body does not have.
var binders = []binder{
	{name: "ShouldBindJSON", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: viaJSON, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindXML", contentType: binding.MIMEXML, write: writeXML, read: viaXML, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindYAML", contentType: "application/x-yaml", write: func(x, pad string) string {
		return "x: " + x + "\npad: \"" + pad + "\"\n"
	}, read: bind((*gin.Context).ShouldBindYAML), sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindTOML", contentType: "application/toml", write: func(x, pad string) string {
		return "x = \"" + x + "\"\npad = \"" + pad + "\"\n"
	}, read: bind((*gin.Context).ShouldBindTOML), sees: fields, nothing: "|"},
	{name: "ShouldBind JSON", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: viaAny, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBind form", contentType: binding.MIMEPOSTForm, write: writeForm, keyed: true, read: viaAny, sees: fields, nothing: "from-query|"},
	{name: "ShouldBind multipart", contentType: binding.MIMEMultipartPOSTForm + "; boundary=b", write: writeMultipart, read: readUpload, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindWith FormPost", contentType: binding.MIMEPOSTForm, write: writeForm, keyed: true, read: bind(with(binding.FormPost)), sees: fields, nothing: "|"},
	{name: "ShouldBindWith ProtoBuf", contentType: binding.MIMEPROTOBUF, write: writeProtobuf, read: readProtobuf, sees: fields},
	{name: "ShouldBindQuery", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: bindBeside((*gin.Context).ShouldBindQuery), sees: beside("from-query"), nothing: "from-query|"},
	{name: "ShouldBindHeader", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: bindBeside((*gin.Context).ShouldBindHeader), sees: beside("from-header"), nothing: "from-header|"},
	{name: "ShouldBindUri", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: bindBeside((*gin.Context).ShouldBindUri), sees: beside("from-path"), nothing: "from-path|"},
	{name: "ShouldBindBodyWith JSON", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: copyOfJSON, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindBodyWith XML", contentType: binding.MIMEXML, write: writeXML, read: copyOfXML, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindBodyWith JSON twice", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: copyOfJSON, again: copyOfJSON, copies: true, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindBodyWith XML twice", contentType: binding.MIMEXML, write: writeXML, read: copyOfXML, again: copyOfXML, copies: true, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBind, then BodyWith JSON", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: viaAny, again: copyOfJSON, sees: fields, nothing: "|", needsBody: true},
	{name: "BodyWith JSON, then ShouldBindJSON", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: copyOfJSON, again: viaJSON, sees: fields, nothing: "|", needsBody: true},
	{name: "ShouldBindXML, then BodyWith XML", contentType: binding.MIMEXML, write: writeXML, read: viaXML, again: copyOfXML, sees: fields, nothing: "|", needsBody: true},
	{name: "io.ReadAll", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: readAll, sees: whole},
	{name: "GetRawData", contentType: binding.MIMEJSON, write: writeJSON, keyed: true, read: readRaw, sees: whole},
}
