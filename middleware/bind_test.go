package middleware

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// everywhere is a request with a field for each source, and methods that a
// decoder may mind.
type everywhere struct {
	Path    string `uri:"path"`
	Header  string `header:"x-header"`
	Content string `json:"content" xml:"content" yaml:"content" toml:"content" form:"content" binding:"required"`
	Plain   string
	Nested  *nested `json:"nested" xml:"nested" yaml:"nested" toml:"nested"`
}

type nested struct {
	Value int    `json:"value" xml:"value" yaml:"value" toml:"value" form:"value"`
	Path  string `uri:"path"`
}

// String is by value: a struct that embeds an everywhere has it, too.
func (e everywhere) String() string {
	n := "none"
	if e.Nested != nil {
		n = fmt.Sprintf("%d/%s", e.Nested.Value, e.Nested.Path)
	}
	return strings.Join([]string{e.Path, e.Header, e.Content, e.Plain, n}, ",")
}

// counting counts how often gin's validator is asked about an everywhere.
type counting struct {
	binding.StructValidator
	n atomic.Int64
}

func (v *counting) ValidateStruct(obj any) error {
	switch obj.(type) {
	case everywhere, *everywhere:
		v.n.Add(1)
	}
	return v.StructValidator.ValidateStruct(obj)
}

func TestRequestsAreBoundByTheirContentTypeAndValidatedOnce(t *testing.T) {
	validator := &counting{StructValidator: binding.Validator}
	binding.Validator = validator
	t.Cleanup(func() { binding.Validator = validator.StructValidator })
	e, _ := routetest.Open(t)
	r := newRouter()
	r.Any("/:path", Locked(e, core.Policy{Key: "{Path}:{Content}"}, func(c *gin.Context, q everywhere) { c.String(http.StatusOK, "%v", q) }))
	s := routetest.Serve(t, r)
	const form = "application/x-www-form-urlencoded"
	for _, tc := range []struct{ name, method, query, contentType, body, want string }{
		{"JSON", "POST", "", "application/json", `{"content":"c","Plain":"p","nested":{"value":7}}`, "a,h,c,p,7/a"},
		{"JSON with parameters", "PUT", "", "application/json; charset=utf-8", `{"content":"c"}`, "a,h,c,,0/a"},
		{"JSON with DELETE", "DELETE", "", "application/json", `{"content":"c"}`, "a,h,c,,0/a"},
		{"XML", "POST", "", "application/xml", `<x><content>c</content><Plain>p</Plain><nested><value>7</value></nested></x>`, "a,h,c,p,7/a"},
		{"text/xml", "POST", "", "text/xml", `<x><content>c</content></x>`, "a,h,c,,0/a"},
		{"form", "POST", "", form, "content=c&Plain=p&value=7", "a,h,c,p,7/a"},
		{"form and query", "POST", "?content=query&Plain=p", form, "content=c", "a,h,c,p,0/a"},
		{"multipart", "POST", "?Plain=query", "multipart/form-data; boundary=b", multipartBody("b", "content", "c", "value", "7"), "a,h,c,,7/a"},
		{"query", "GET", "?content=c&Plain=p", "", "", "a,h,c,p,0/a"},
		{"query, whatever the body", "GET", "?content=c", "application/json", `{"content":"d"}`, "a,h,c,,0/a"},
		{"query without a type", "POST", "?content=c", "", "", "a,h,c,,0/a"},
		{"query of a type that gin does not know", "POST", "?content=c", "text/csv", "content,d", "a,h,c,,0/a"},
		{"type in another case", "POST", "?content=c", "Application/JSON", `{"content":"d"}`, "a,h,c,,0/a"},
		{"form with DELETE", "DELETE", "?content=c", form, "content=d", "a,h,c,,0/a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := validator.n.Load()
			req := routetest.NewRequest(t, s, tc.method, "/a"+tc.query, tc.body, "X-Header", "h")
			if tc.contentType != "" {
				req.Header.Set("Content-Type", tc.contentType)
			}
			if a := routetest.Send(t, s, req); a.Body != tc.want {
				t.Errorf("got %d %q; want %q", a.Status, a.Body, tc.want)
			}
			if n := validator.n.Load() - before; n != 1 {
				t.Errorf("validated %d times; want once", n)
			}
		})
	}
}

func TestFieldsAreFilledFromTheSourcesThatTheirTagsName(t *testing.T) {
	type embedded struct {
		Limit int `form:"limit" json:"limit"`
	}
	type req struct {
		Path    string `uri:"id"`
		Header  string `header:"X-User"`
		JSON    string `json:"js"`
		Form    string `form:"fo"`
		Never   string `json:"-"`
		Several string `uri:"several" header:"X-Several" json:"several" form:"several"`
		Default int    `uri:"default,default=5"`
		Unnamed string `header:",default=none"`
		Plain   string
		Inner   struct {
			Plain string
			Form  string `form:"inner"`
		} `json:"inner"`
		Whole *struct{ Deep int } `json:"whole"`
		embedded
	}
	e, _ := routetest.Open(t)
	r := newRouter()
	h := Locked(e, core.Policy{Key: "k"}, func(c *gin.Context, q req) { c.String(http.StatusOK, "%+v", q) })
	r.POST("/:id", h)
	r.POST("/:id/:several", h)
	s := routetest.Serve(t, r)
	const all = `{"id":"x","Path":"x","path":"x","Header":"x","js":"1","Form":"x","fo":"x","Never":"x","never":"x","several":"body","Default":6,"Unnamed":"x",` +
		`"Plain":"2","inner":{"Plain":"3","Form":"x"},"limit":4,"Whole":null}`
	const form = "id=x&Path=x&Header=x&js=x&JSON=x&fo=1&Form=x&Never=x&several=body&Default=6&Unnamed=x&Plain=2&inner=3&limit=4&Deep=7"
	for _, tc := range []struct {
		name, path, contentType, body string
		headers                       []string
		want                          string
	}{
		{
			"JSON", "/p", "application/json", all,
			[]string{"Header", "x", "Json", "x", "Plain", "x", "Path", "x", "Never", "x"},
			"{Path:p Header: JSON:1 Form: Never: Several:body Default:5 Unnamed:none Plain:2 Inner:{Plain:3 Form:} Whole:<nil> embedded:{Limit:4}}",
		},
		{
			"form", "/p", "application/x-www-form-urlencoded", form,
			[]string{"X-User", "u", "Unnamed", "n"},
			"{Path:p Header:u JSON: Form:1 Never: Several:body Default:5 Unnamed:n Plain:2 Inner:{Plain: Form:3} Whole:<nil> embedded:{Limit:4}}",
		},
		{
			"header before body", "/p", "application/json", all,
			[]string{"X-Several", "header"},
			"{Path:p Header: JSON:1 Form: Never: Several:header Default:5 Unnamed:none Plain:2 Inner:{Plain:3 Form:} Whole:<nil> embedded:{Limit:4}}",
		},
		{
			"path before header", "/p/path", "application/json", all,
			[]string{"X-Several", "header"},
			"{Path:p Header: JSON:1 Form: Never: Several:path Default:5 Unnamed:none Plain:2 Inner:{Plain:3 Form:} Whole:<nil> embedded:{Limit:4}}",
		},
		{
			"nothing", "/p", "application/json", "", nil,
			"{Path:p Header: JSON: Form: Never: Several: Default:5 Unnamed:none Plain: Inner:{Plain: Form:} Whole:<nil> embedded:{Limit:0}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			headers := append([]string{"Content-Type", tc.contentType}, tc.headers...)
			a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, tc.path, tc.body, headers...))
			if a.Body != tc.want {
				t.Errorf("got  %d %s\nwant %s", a.Status, a.Body, tc.want)
			}
		})
	}
}

func TestEmptyBodyLeavesTheFieldsToOtherSources(t *testing.T) {
	type req struct {
		SKU string `uri:"sku" binding:"required"`
	}
	e, _ := routetest.Open(t)
	r := newRouter()
	r.Any("/:sku", Locked(e, core.Policy{Key: "stock:{SKU}"}, func(c *gin.Context, _ req) { tellKey(c) }))
	s := routetest.Serve(t, r)
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		for _, contentType := range []string{
			"", "application/json", "application/xml", "application/yaml", "application/toml",
			"application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "text/plain",
		} {
			req := routetest.NewRequest(t, s, method, "/a", "")
			if contentType != "" {
				req.Header.Set("Content-Type", contentType)
			}
			if a := routetest.Send(t, s, req); a.Body != "stock:a" {
				t.Errorf("%s %s: got %d %q", method, contentType, a.Status, a.Body)
			}
		}
	}
}

func TestFilesOfAFormAreBoundAndTheirTemporaryFilesRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	type req struct {
		SKU   string                  `form:"sku" binding:"required"`
		File  *multipart.FileHeader   `form:"file" binding:"required"`
		Files []*multipart.FileHeader `form:"files"`
		Other *multipart.FileHeader   `json:"other"`
	}
	e, _ := routetest.Open(t)
	r := newRouter()
	// Whoever replaces the request takes the form from net/http's sight.
	r.Use(gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) {
		c.Request = c.Request.WithContext(c.Request.Context())
		defer func() {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("temporary files are left: %v", left)
			}
		}()
		c.Next()
	})
	r.POST("/", Locked(e, core.Policy{Key: "{SKU}"}, func(c *gin.Context, q req) {
		if stored, _ := os.ReadDir(dir); len(stored) == 0 {
			t.Error("no file was stored: the test is for nothing")
		}
		f, err := q.File.Open()
		if err != nil {
			t.Error(err)
			return
		}
		n, err := io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Error(err)
		}
		if q.SKU == "panic" {
			panic("boom")
		}
		c.String(http.StatusOK, "%s %d %d %v", q.SKU, n, len(q.Files), q.Other == nil)
	}, WithBodyLimit(4<<20)))
	r.POST("/unruly", Locked(e, core.Policy{Key: "k"}, func(*gin.Context, struct {
		SKU string `form:"sku" binding:"nosuchrule"`
	},
	) {
		t.Error("the handler runs")
	}, WithBodyLimit(4<<20)))
	s := routetest.Serve(t, r)
	const size = multipartMemory + 1
	file := strings.Repeat("x", size)
	post := func(path, sku string) routetest.Answer {
		part := func(name, content string) string {
			return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"; filename=\"f\"\r\n\r\n" + content + "\r\n"
		}
		body := part("file", file) + part("files", "1") + part("files", "2") + part("other", "3") + multipartBody("b", "sku", sku)
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, body, "Content-Type", "multipart/form-data; boundary=b"))
	}
	upload := func(sku string) routetest.Answer { return post("/", sku) }
	post("/unruly", "a").MustBe(t, 500, "")
	if a := upload("a"); a.Body != fmt.Sprintf("a %d 2 true", size) {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	upload("panic").MustBe(t, 500, "")
	upload("").MustBe(t, 400, "REQUEST_INVALID")
	release := routetest.Hold(t, e, "taken")
	upload("taken").MustBe(t, 409, "LOCK_BUSY")
	release()
}

func TestFormsParsedBeforeAreBound(t *testing.T) {
	type req struct {
		SKU string `form:"sku"`
	}
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/", func(c *gin.Context) { c.PostForm("sku") }, Locked(e, core.Policy{Key: "{SKU}"}, func(c *gin.Context, _ req) { tellKey(c) }))
	s := routetest.Serve(t, r)
	for contentType, body := range map[string]string{
		"application/x-www-form-urlencoded": "sku=a",
		"multipart/form-data; boundary=b":   multipartBody("b", "sku", "a"),
	} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", body, "Content-Type", contentType)); a.Body != "a" {
			t.Errorf("%s: got %d %q", contentType, a.Status, a.Body)
		}
	}
}

func TestGinsDecoderSettingsCount(t *testing.T) {
	type req struct {
		N any `json:"n"`
	}
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/", Locked(e, core.Policy{Key: "k"}, func(c *gin.Context, q req) { c.String(http.StatusOK, "%v", q.N) }))
	s := routetest.Serve(t, r)
	post := func(body string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", body, "Content-Type", "application/json"))
	}
	binding.EnableDecoderUseNumber = true
	binding.EnableDecoderDisallowUnknownFields = true
	defer func() { binding.EnableDecoderUseNumber, binding.EnableDecoderDisallowUnknownFields = false, false }()
	if a := post(`{"n":9007199254740993}`); a.Body != "9007199254740993" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	post(`{"m":1}`).MustBe(t, 400, "REQUEST_INVALID")
}

func FuzzLockedBindsWithoutPanic(f *testing.F) {
	for _, contentType := range []string{
		"application/json", "application/xml", "application/yaml", "application/toml",
		"application/x-www-form-urlencoded", "multipart/form-data; boundary=b",
	} {
		f.Add(contentType, "content=c", `{"content":"c","nested":{"value":7}}`)
		f.Add(contentType, "", "content: c\nnested:\n  value: 7\n")
		f.Add(contentType, "", "content = 'c'\n[nested]\nvalue = 7\n")
		f.Add(contentType, "%zz", "<x><content>c</content></x>")
		f.Add(contentType, "", multipartBody("b", "content", "c"))
		f.Add(contentType, "", "null")
	}
	b, err := newBinder(reflect.TypeFor[everywhere](), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, contentType, query, body string) {
		r, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", contentType)
		var q everywhere
		if err := b.bind(unread(r, []byte(body)), contentType, gin.Params{{Key: "path", Value: "a"}}, []byte(body), &q); err != nil {
			return
		}
		if q.Path != "a" || q.Header != "" || q.Content == "" {
			t.Errorf("got %+v", q)
		}
	})
}
