package middleware

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestParameterThatAMiddlewareAddsIsAskedOfEachRequest(t *testing.T) {
	e, _ := routetest.Open(t)
	logtest.Capture(t)
	add := func(c *gin.Context) {
		if v := c.Query("add"); v != "" {
			c.AddParam("tenant", v)
		}
	}
	r := newRouter()
	r.GET("/", add, Lock(e, core.Policy{Key: "t:{path.tenant}"}), tellKey)
	s := routetest.Serve(t, r)
	for range 2 {
		routetest.Get(t, s, "/").MustBe(t, 500, "LOCK_POLICY")
		if a := routetest.Get(t, s, "/?add=a"); a.Body != "t:a" {
			t.Errorf("with the parameter: %d %q", a.Status, a.Body)
		}
	}
}

func TestParameterInTheSyntaxOfARouteIsRefused(t *testing.T) {
	e, _ := routetest.Open(t)
	logtest.Capture(t)
	r := newRouter()
	r.GET("/products/:sku/:shop", Lock(e, core.Policy{Key: "stock::sku:{path.shop}"}), tellKey)
	r.GET("/orders/:id/:sku", Lock(e, core.Policy{Key: "order:sku:{path.id}"}), tellKey) // a colon between parts
	s := routetest.Serve(t, r)
	routetest.Get(t, s, "/products/a/b").MustBe(t, 500, "LOCK_POLICY")
	if a := routetest.Get(t, s, "/orders/1/b"); a.Body != "order:sku:1" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
	for key, says := range map[string]string{"stock::sku": "the key has the text :sku", "/products/:sku": "write {path.sku}", "stock:sku": "", "stock::skus": ""} {
		_, err := NewTable(e, Rules{"/products/:sku": {Key: key}})
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", key, err, says)
		}
	}
}

func TestMalformedQueryIsRefusedWhereAKeyHasAPartOfOne(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.GET("/", Lock(e, core.Policy{Key: "{query.id}"}), tellKey)
	r.GET("/other", Lock(e, core.Policy{Key: "k"}), tellKey)
	s := routetest.Serve(t, r)
	for _, q := range []string{"id=a;id=b", "id=a&x;y", "id=a&%zz", "id=a&b=%", "id=a&%f"} {
		routetest.Get(t, s, "/?"+q).MustBe(t, 400, "LOCK_KEY_INVALID")
		if a := routetest.Get(t, s, "/other?"+q); a.Body != "k" {
			t.Errorf("without it: %d %q", a.Status, a.Body)
		}
	}
	if a := routetest.Get(t, s, "/?id=%3B"); a.Body != "%3B" {
		t.Errorf("an encoded semicolon: %d %q", a.Status, a.Body)
	}
}

func TestBodiesAreDecodedInTheFormatsThatTagsName(t *testing.T) {
	e, _ := routetest.Open(t)
	type untagged struct{ ID string }
	type inJSON struct {
		ID string `json:"id"`
	}
	type inForm struct {
		ID string `form:"id"`
	}
	type inYAML struct {
		ID string `yaml:"id" json:"id"`
	}
	type inXML struct {
		ID string `xml:"id"`
	}
	type byPath struct {
		ID string `uri:"id"`
	}
	type dated struct {
		ID string `uri:"id"`
		At time.Time
	}
	policy := core.Policy{Key: "{ID}"}
	r := newRouter()
	r.POST("/dated/:id", Locked(e, policy, func(c *gin.Context, d dated) { c.String(http.StatusOK, d.At.Format("2006")) }))
	r.POST("/path/:id", Locked(e, policy, func(c *gin.Context, p byPath) { c.String(http.StatusOK, p.ID+c.PostForm("id")) }))
	r.POST("/untagged", Locked(e, policy, func(c *gin.Context, _ untagged) { tellKey(c) }))
	r.POST("/json", Locked(e, policy, func(c *gin.Context, _ inJSON) { tellKey(c) }))
	r.POST("/form", Locked(e, policy, func(c *gin.Context, _ inForm) { tellKey(c) }))
	r.POST("/yaml", Locked(e, policy, func(c *gin.Context, _ inYAML) { tellKey(c) }))
	r.POST("/xml", Locked(e, policy, func(c *gin.Context, _ inXML) { tellKey(c) }))
	r.POST("/more", Locked(e, policy, func(c *gin.Context, _ untagged) { tellKey(c) }, WithFormats("xml", "form")))
	s := routetest.Serve(t, r)
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/dated/x", `{"At":"2026-11-23T10:00:00Z"}`, "Content-Type", "application/json")); a.Body != "2026" {
		t.Errorf("an untagged time is not bound: %d %s", a.Status, a.Body)
	}
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/path/x", "id=a", "Content-Type", "application/x-www-form-urlencoded")); a.Body != "xa" {
		t.Errorf("a body that fills no field is refused: %d %s", a.Status, a.Body)
	}
	bodies := map[string]string{
		"application/json": `{"ID":"a","id":"a"}`, "application/x-yaml": "id: a\nID: a\n", "application/toml": "id = 'a'\nID = 'a'\n",
		"application/xml": "<x><ID>a</ID><id>a</id></x>", "application/x-www-form-urlencoded": "id=a&ID=a",
		"multipart/form-data; boundary=b": multipartBody("b", "id", "a") + multipartBody("b", "ID", "a"),
	}
	takes := map[string][]string{
		"/untagged": {"application/json"}, "/json": {"application/json"}, "/yaml": {"application/json"}, "/xml": {"application/xml"},
		"/form": {"application/x-www-form-urlencoded", "multipart/form-data; boundary=b"},
		"/more": {"application/json", "application/xml", "application/x-www-form-urlencoded"},
	}
	for path, taken := range takes {
		for contentType, body := range bodies {
			a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, body, "Content-Type", contentType))
			wants := false
			for _, ct := range taken {
				wants = wants || ct == contentType
			}
			switch {
			case path == "/more" && strings.HasPrefix(contentType, "multipart"): // of two parts the first has another name
			case wants && a.Body != "a":
				t.Errorf("%s takes no %s: %d %s", path, contentType, a.Status, a.Body)
			case !wants && a.Problem.Code != "REQUEST_INVALID":
				t.Errorf("%s takes %s: %d %s", path, contentType, a.Status, a.Body)
			}
		}
	}
	for name, err := range map[string]error{
		"another format":  lockedErr[untagged](e, policy, WithFormats("yaml")),
		"taken already":   lockedErr[untagged](e, policy, WithFormats("json")),
		"none":            lockedErr[untagged](e, policy, WithFormats()),
		"without decoder": func() error { _, err := New(e, core.Policy{Key: "k"}, WithFormats("xml")); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "WithFormats") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
