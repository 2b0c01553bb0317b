package middleware

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestWhatLockedCannotDoIsRefusedWhenRegistered(t *testing.T) {
	e, _ := routetest.Open(t)
	value := func(*gin.Context) (string, error) { return "v", nil }
	key := func(k string) core.Policy { return core.Policy{Key: k} }
	type node struct {
		SKU  string
		Next *node
	}
	type document struct {
		SKU  string
		Next *document `json:"next" form:"-"`
	}
	type inner struct{ ID string }
	type embedding struct{ *inner }
	type level int
	type scalar struct{ level }
	_ = scalar{1}.level
	type nothing struct{}
	for _, tc := range []struct {
		name string
		err  error
		says string // empty: no error
	}{
		{"pointer", lockedErr[*deduction](e, key("k")), "the request type is *middleware.deduction, which a body of null would leave nil; use middleware.deduction"},
		{"interface", lockedErr[any](e, key("k")), "the interface interface {}, into which nothing can be bound; use a struct"},
		{"map", lockedErr[map[string]string](e, key("k")), "the request type is map[string]string, a map; use a struct"},
		{"slice", lockedErr[[]deduction](e, key("k")), "a slice; use a struct"},
		{"string", lockedErr[string](e, key("{.}")), "the request type is string, a string; use a struct"},
		{"pointer to a pointer", lockedErr[**deduction](e, key("k")), "a ptr; use a struct"},
		{"recursive", lockedErr[node](e, key("k")), `field Next of middleware.node leads back to middleware.node, which gin's form binding would follow for ever; tag it form:"-", beside the tags of the formats that may fill it`},
		{"recursive, not for forms", lockedErr[document](e, key("k")), ""},
		{"embedded pointer", lockedErr[embedding](e, key("k")), "embeds a pointer to the unexported middleware.inner, which no decoder can set"},
		{"embedded scalar", lockedErr[scalar](e, key("k")), "middleware.scalar embeds the unexported middleware.level, which gin's form binding fails to set"},
		{"no fields", lockedErr[nothing](e, key("k")), ""},
		{"field", lockedErr[deduction](e, key("{SKU}:{Units}")), ""},
		{"no such field", lockedErr[deduction](e, key("{SKUs}")), "{SKUs}: middleware.deduction has no field SKUs; did you mean SKU?; besides fields there are {path.name}"},
		{"name of the body's", lockedErr[deduction](e, key("{units}")), "middleware.deduction has no field units; did you mean Units?"},
		{"body", lockedErr[deduction](e, key("{body.units}")), "{body.units}: the body is bound into middleware.deduction; name the field that holds the value, such as {SKU}"},
		{"whole", lockedErr[deduction](e, key("{.}")), "so name a field of it, such as SKU"},
		{"malformed built-in", lockedErr[deduction](e, key("{client.id}")), "{client.id}: unknown; use {client.ip}"},
		{"value", lockedErr[deduction](e, key("{mine}"), WithValue("mine", value)), ""},
		{"value not used", lockedErr[deduction](e, key("{SKU}"), WithValue("mine", value)), "WithValue is given for {mine}, which the key does not use"},
		{"value and field", lockedErr[deduction](e, key("{SKU}"), WithValue("SKU", value)), "{SKU}: it is a field of middleware.deduction and the name of a WithValue; use another name for the option"},
		{"tag", lockedErr[tagged](e, key("{sku}:{SKU}:{place.id}:{path.sku}")), ""},
		{"misspelt tag", lockedErr[tagged](e, key("{skv}")), "middleware.tagged has no field skv; did you mean sku?; besides fields"},
		{"value and tag", lockedErr[tagged](e, key("{sku}"), WithValue("sku", value)), "{sku}: it is a field of middleware.tagged and the name of a WithValue; use another name for the option"},
		{"tag and parameter", lockedErr[tagged](e, key("{path.id}")), "{path.id}: it is a field of middleware.tagged and could be meant as a part of the request; use the field's Go name, or another lock tag"},
		{"field with such a tag by its Go name", lockedErr[tagged](e, key("{Way.ID}")), ""},
		{"tag and body", lockedErr[tagged](e, key("{body}")), "{body}: it is a field of middleware.tagged and could be meant as a part of the request"},
		{"tag twice", lockedErr[taggedTwice](e, key("{sku}")), `Code of middleware.taggedTwice has the tag lock:"sku", and so has SKU; use a tag that names one field alone; besides fields`},
		{"body left unread", lockedErr[deduction](e, key("k"), WithoutBodyBuffer()), "the body is read to bind it before the lock is taken; leave the option out"},
		{"option twice", lockedErr[deduction](e, key("k"), WithFilter(nil), WithFilter(nil)), "given twice"},
		{"policy", lockedErr[deduction](e, core.Policy{Key: "k", TTL: -1}), "TTL"},
		{"engine", lockedErr[deduction](nil, key("k")), "engine is nil"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if (tc.err != nil) != (tc.says != "") || tc.err != nil && !strings.Contains(tc.err.Error(), tc.says) {
				t.Errorf("got %v; want %q", tc.err, tc.says)
			}
			if tc.err != nil && !strings.HasPrefix(tc.err.Error(), "gin locked handler: ") {
				t.Errorf("the error does not say where it is from: %v", tc.err)
			}
		})
	}
	if h, err := NewLocked[deduction](e, key("k"), nil); h != nil || err == nil || !strings.Contains(err.Error(), "the function is nil") {
		t.Errorf("without a function: got %v", err)
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "use a struct") {
			t.Errorf("Locked panics with %v; want the error", err)
		}
	}()
	Locked(e, key("k"), func(*gin.Context, int) {})
}

// lockedErr returns what NewLocked says to Req.
func lockedErr[Req any](e *core.Engine, p core.Policy, o ...Option) error {
	h, err := NewLocked(e, p, func(*gin.Context, Req) {}, o...)
	if (h == nil) != (err != nil) {
		return errors.New("the handler is nil without an error, or not nil with one")
	}
	return err
}

// fussy fails to be decoded by a reason of its own.
type fussy struct{}

func (*fussy) UnmarshalJSON([]byte) error { return &core.Error{Op: "acquire", Kind: core.ErrBusy} }

func TestRequestsThatCannotBeBoundNeverTakeTheLock(t *testing.T) {
	e, d := routetest.Open(t)
	type req struct {
		SKU   string `json:"sku" binding:"required"`
		Units int    `json:"units" header:"X-Units" binding:"max=10"`
		Fussy *fussy `json:"fussy"`
		Page  int    `form:"page"`
	}
	var seen error
	r := newRouter()
	fn := func(*gin.Context, req) { t.Error("the handler runs") }
	r.POST("/", Locked(e, core.Policy{Key: "k"}, fn))
	r.GET("/", Locked(e, core.Policy{Key: "k"}, fn))
	r.POST("/own", Locked(e, core.Policy{Key: "k"}, fn, WithErrorHandler(func(c *gin.Context, err error) {
		seen = err
		c.Status(http.StatusTeapot)
	})), func(*gin.Context) { t.Error("the chain goes on") })
	s := routetest.Serve(t, r)
	d.Fail(errors.New("the store is asked")) // and would answer 503
	defer d.Heal()
	const secret = "s3cret"
	for _, tc := range []struct{ name, method, path, contentType, body, units string }{
		{"malformed", "POST", "/", "application/json", `{"sku":"` + secret, ""},
		{"of another type", "POST", "/", "application/json", `{"sku":"a","units":"` + secret + `"}`, ""},
		{"not JSON", "POST", "/", "application/json", secret, ""},
		{"required is missing", "POST", "/", "application/json", `{"units":1}`, ""},
		{"null", "POST", "/", "application/json", `null`, ""},
		{"empty", "POST", "/", "application/json", ``, ""},
		{"not valid", "POST", "/", "application/json", `{"sku":"` + secret + `","units":11}`, ""},
		{"refused by its own decoder", "POST", "/", "application/json", `{"sku":"a","fussy":{}}`, ""},
		{"header", "POST", "/", "application/json", `{"sku":"a"}`, secret},
		{"query", "GET", "/?page=" + secret, "", "", ""},
		{"malformed query", "GET", "/?page=%zz", "", "", ""},
		{"XML", "POST", "/", "application/xml", `<req><sku>` + secret, ""},
		{"YAML", "POST", "/", "application/x-yaml", "sku: [" + secret, ""},
		{"TOML", "POST", "/", "application/toml", "sku = " + secret, ""},
		{"form", "POST", "/", "application/x-www-form-urlencoded", "page=" + secret, ""},
		{"malformed form", "POST", "/", "application/x-www-form-urlencoded", "sku=%zz", ""},
		{"multipart without a boundary", "POST", "/", "multipart/form-data", secret, ""},
		{"multipart cut off", "POST", "/", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"page\"\r\n\r\n1", ""},
		{"protobuf", "POST", "/", "application/x-protobuf", secret, ""},
		{"MessagePack", "POST", "/", "application/msgpack", secret, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logged := logtest.Capture(t)
			headers := []string{"Content-Type", tc.contentType}
			if tc.units != "" {
				headers = append(headers, "X-Units", tc.units)
			}
			a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, tc.path, tc.body, headers...))
			a.MustBe(t, 400, "REQUEST_INVALID")
			if strings.Contains(a.Body+logged.String(), secret) || strings.Contains(strings.ReplaceAll(a.Body, "X-Units", ""), "Units") || a.Problem.Detail == "" {
				t.Errorf("the answer %s or log %s is not as it should be", a.Body, logged)
			}
			if tc.method == "GET" {
				return
			}
			seen = nil
			if a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, "/own", tc.body, headers...)); a.Status != http.StatusTeapot || !errors.Is(seen, ErrBind) {
				t.Errorf("the error handler got %v, the client %d", seen, a.Status)
			}
		})
	}
	var syntax *json.SyntaxError
	if routetest.Send(t, s, routetest.NewRequest(t, s, "POST", "/own", "{,}", "Content-Type", "application/json")); !errors.As(seen, &syntax) {
		t.Errorf("the error handler got %v; want what the decoder said", seen)
	}
}

func TestLockedRefusesABodyThatCannotBeRead(t *testing.T) {
	e, _ := routetest.Open(t)
	var seen error
	h := Locked(e, core.Policy{Key: "k"}, func(*gin.Context, deduction) { t.Error("the handler runs") })
	own := Locked(e, core.Policy{Key: "k"}, func(*gin.Context, deduction) { t.Error("the handler runs") },
		WithErrorHandler(func(c *gin.Context, err error) { seen = err; c.Status(http.StatusTeapot) }))
	broken := func(c *gin.Context) { c.Request.Body = io.NopCloser(&brokenReader{}) }
	cut := func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 4) }
	consume := func(c *gin.Context) { _, _ = io.ReadAll(c.Request.Body) }
	r := newRouter()
	r.POST("/broken", broken, h)
	r.POST("/own", broken, own)
	r.POST("/cut", cut, h)
	r.POST("/consumed", consume, Locked(e, core.Policy{Key: "k"}, func(*gin.Context, struct{ Units int }) { t.Error("the handler runs") }))
	s := routetest.Serve(t, r)
	post := func(path string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, `{"units":3}`, "Content-Type", "application/json"))
	}
	post("/broken").MustBe(t, 400, "BODY_UNREADABLE")
	post("/cut").MustBe(t, 413, "BODY_TOO_LARGE")
	post("/consumed").MustBe(t, 400, "REQUEST_INVALID")
	if post("/own"); !errors.Is(seen, ErrBody) || errors.Is(seen, ErrBind) {
		t.Errorf("the error handler got %v; want ErrBody", seen)
	}
}

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errors.New("the line is cut") }
