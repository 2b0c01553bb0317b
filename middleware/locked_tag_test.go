package middleware

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

type (
	tagged struct {
		SKU   string `uri:"sku" lock:"sku"`
		Place struct {
			ID int `json:"id" lock:"id"`
		} `json:"place" lock:"place"`
		Way struct {
			ID int `json:"id" lock:"id"`
		} `json:"way" lock:"path"`
		Text string `json:"text" lock:"body"`
	}
	taggedTwice struct {
		SKU  string `lock:"sku"`
		Code string `lock:"sku"`
	}
)

func TestLockedKeyIsMadeOfTaggedFields(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	locked := Locked(e, core.Policy{Key: "stock:{sku}:{place.id}"}, func(c *gin.Context, _ tagged) { tellKey(c) })
	r.POST("/products/:sku", locked)
	r.POST("/products", locked)
	s := routetest.Serve(t, r)
	post := func(path string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, `{"place":{"id":3}}`, "Content-Type", "application/json"))
	}
	if a := post("/products/A-1"); a.Body != "stock:A-1:3" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	// The route is at fault, not the request: it has no parameter that fills the field.
	post("/products").MustBe(t, 500, "LOCK_POLICY")
}
