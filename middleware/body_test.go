package middleware

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

type order struct {
	SKU string `json:"sku" form:"sku"`
}

func TestEveryBindingFindsTheWholeBody(t *testing.T) {
	const doc = `{"sku":"a"}`
	raw := func(c *gin.Context) (string, error) {
		b, err := c.GetRawData()
		return string(b), err
	}
	bind := func(f func(*gin.Context, any) error) func(*gin.Context) (string, error) {
		return func(c *gin.Context) (string, error) {
			var o order
			err := f(c, &o)
			return o.SKU, err
		}
	}
	viaBody := bind((*gin.Context).ShouldBindJSON)
	viaCopy := bind((*gin.Context).ShouldBindBodyWithJSON)
	for _, tc := range []struct {
		name, contentType, body string
		read                    []func(*gin.Context) (string, error)
		want                    string
	}{
		{name: "JSON", contentType: gin.MIMEJSON, body: doc, read: []func(*gin.Context) (string, error){viaBody}, want: "a"},
		{name: "JSON from gin's copy", contentType: gin.MIMEJSON, body: doc, read: []func(*gin.Context) (string, error){viaCopy, viaCopy}, want: "a"},
		{name: "JSON both ways", contentType: gin.MIMEJSON, body: doc, read: []func(*gin.Context) (string, error){viaBody, viaCopy}, want: "a"},
		{name: "by type", contentType: gin.MIMEJSON, body: doc, read: []func(*gin.Context) (string, error){bind((*gin.Context).ShouldBind)}, want: "a"},
		{name: "form", contentType: gin.MIMEPOSTForm, body: "sku=a", read: []func(*gin.Context) (string, error){bind((*gin.Context).ShouldBind)}, want: "a"},
		{name: "form by hand", contentType: gin.MIMEPOSTForm, body: "sku=a", read: []func(*gin.Context) (string, error){
			func(c *gin.Context) (string, error) { return c.PostForm("sku"), nil },
		}, want: "a"},
		{name: "raw", contentType: "text/plain", body: "hello", read: []func(*gin.Context) (string, error){raw}, want: "hello"},
		{name: "empty", contentType: gin.MIMEJSON, read: []func(*gin.Context) (string, error){raw}},
	} {
		for _, chunked := range []bool{false, true} {
			for _, key := range []string{"k", "{body.sku}"} {
				t.Run(fmt.Sprintf("%s, chunked %v, key %s", tc.name, chunked, key), func(t *testing.T) {
					if key != "k" && tc.want != "a" {
						t.Skip("the body has no such value")
					}
					if chunked && key == "k" && len(tc.read) > 1 {
						t.Skip("a body that is not read ahead can be read once")
					}
					e, _ := routetest.Open(t)
					r := newRouter()
					p := core.Policy{Key: "a:" + key}
					r.POST("/", Lock(e, p), Lock(e, core.Policy{Key: "b:" + key}), func(c *gin.Context) {
						for i, read := range tc.read {
							if got, err := read(c); got != tc.want || err != nil {
								t.Errorf("read %d: %q, %v; want %q", i, got, err, tc.want)
							}
						}
					})
					s := routetest.Serve(t, r)
					req := routetest.NewRequest(t, s, http.MethodPost, "/", tc.body, "Content-Type", tc.contentType)
					if chunked && tc.body != "" {
						req.Body = io.NopCloser(req.Body)
						req.ContentLength = -1
					}
					routetest.Send(t, s, req).MustBe(t, 200, "")
				})
			}
		}
	}
}

func TestBodyReadByAnEarlierHandler(t *testing.T) {
	const doc = `{"sku":"a"}`
	for _, tc := range []struct {
		name   string
		before gin.HandlerFunc
		status int
	}{
		{name: "into gin's copy", before: func(c *gin.Context) { _ = c.ShouldBindBodyWithJSON(&order{}) }, status: 200},
		{name: "for good", before: func(c *gin.Context) { _, _ = c.GetRawData() }, status: 400},
		{name: "and replaced", before: func(c *gin.Context) {
			_, _ = c.GetRawData()
			c.Request.Body = io.NopCloser(strings.NewReader(doc))
		}, status: 200},
		{name: "into gin's copy, and replaced by another", before: func(c *gin.Context) {
			_ = c.ShouldBindBodyWithJSON(&order{})
			c.Request.Body = io.NopCloser(strings.NewReader(`{"sku":"b"}`))
		}, status: 400},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			r := newRouter()
			r.POST("/", tc.before, Lock(e, core.Policy{Key: "{body.sku}"}), tellKey)
			s := routetest.Serve(t, r)
			a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", doc, "Content-Type", gin.MIMEJSON))
			if a.Status != tc.status || a.Status == 200 && a.Body != "a" {
				t.Errorf("got %d %s; want %d", a.Status, a.Body, tc.status)
			}
		})
	}
}

func TestCompressedBodyIsNotGivenToGinAsContent(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) {
		// A middleware that decompresses behind the lock.
		c.Request.Body = io.NopCloser(strings.NewReader(`{"sku":"a"}`))
		var o order
		if err := c.ShouldBindBodyWithJSON(&o); err != nil || o.SKU != "a" {
			t.Errorf("got %q, %v", o.SKU, err)
		}
	})
	s := routetest.Serve(t, r)
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "compressed", "Content-Encoding", "x")).MustBe(t, 200, "")
}
