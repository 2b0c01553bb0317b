package middleware

import (
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestRefusalNamesTheFieldAsItsClientKnowsIt(t *testing.T) {
	e, _ := routetest.Open(t)
	type Embedded struct {
		Note string `json:"note" binding:"max=3"`
	}
	type item struct {
		Count int `json:"count" xml:"amount" binding:"max=10"`
	}
	type req struct {
		Embedded
		SKU    string           `json:"sku" form:"article" binding:"max=5"`
		Order  struct{ ID int } `json:"order"`
		Items  []item           `json:"items" xml:"item" binding:"dive"`
		Prices map[string]item  `json:"prices" xml:"-" binding:"dive"`
		Tenant int              `header:"X-Tenant"`
		Page   int              `form:"page"`
		Shop   int              `uri:"shop" binding:"max=100"`
	}
	r := newRouter()
	fn := func(c *gin.Context, _ req) { c.Status(204) }
	r.POST("/:shop", Locked(e, core.Policy{Key: "k"}, fn))
	r.GET("/:shop", Locked(e, core.Policy{Key: "k"}, fn))
	s := routetest.Serve(t, r)
	const json, form, xml, secret = "application/json", "application/x-www-form-urlencoded", "application/xml", "s3cret"
	for _, tc := range []struct{ name, method, path, contentType, body, tenant, want string }{
		{"JSON of another type", "POST", "/1", json, `{"sku":7}`, "", "sku"},
		{"JSON of another type, nested", "POST", "/1", json, `{"order":{"ID":"s3cret"}}`, "", "order.ID"},
		{"JSON of another type, in a list", "POST", "/1", json, `{"items":[{"count":"s3cret"}]}`, "", "items.count"},
		{"JSON of another type, in a map", "POST", "/1", json, `{"prices":{"s3cret":{"count":"x"}}}`, "", "prices.count"},
		{"JSON of another type, in a map with dots", "POST", "/1", json, `{"prices":{"a.s3cret.count":{"count":"x"}}}`, "", "prices.count"},
		{"JSON of another type, a whole element", "POST", "/1", json, `{"items":[{},"s3cret"]}`, "", "items"},
		{"JSON of another type, embedded", "POST", "/1", json, `{"note":7}`, "", "note"},
		{"JSON that is not valid", "POST", "/1", json, `{"sku":"s3cret"}`, "", "sku"},
		{"JSON that is not valid, embedded", "POST", "/1", json, `{"note":"s3cret"}`, "", "note"},
		{"JSON that is not valid, in a list", "POST", "/1", json, `{"items":[{"count":1},{"count":11}]}`, "", "items[1].count"},
		{"JSON that is not valid, in a map", "POST", "/1", json, `{"prices":{"s3cret":{"count":11}}}`, "", "prices.count"},
		{"JSON that is not valid, in a map of strange keys", "POST", "/1", json, `{"prices":{"a.b[s3cret]":{"count":11}}}`, "", ""},
		{"XML that is not valid", "POST", "/1", xml, `<req><item><amount>11</amount></item></req>`, "", "item[0].amount"},
		{"form of another type", "POST", "/1", form, "article=a&page=s3cret", "", "page"},
		{"form that is not valid", "POST", "/1", form, "article=s3cret", "", "article"},
		{"query of another type", "GET", "/1?page=s3cret&other=1", "", "", "", "page"},
		{"header of another type", "POST", "/1", json, `{}`, secret, "X-Tenant"},
		{"path of another type", "POST", "/s3cret", json, `{}`, "", "shop"},
		{"path that is not valid", "POST", "/101", json, `{}`, "", "shop"},
		{"malformed JSON", "POST", "/1", json, `{"s3cret"`, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			headers := []string{"Content-Type", tc.contentType}
			if tc.tenant != "" {
				headers = append(headers, "X-Tenant", tc.tenant)
			}
			a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, tc.path, tc.body, headers...))
			a.MustBe(t, 400, "REQUEST_INVALID")
			if a.Problem.Field != tc.want || strings.Contains(a.Body, secret) {
				t.Errorf("got field %q, want %q: %s", a.Problem.Field, tc.want, a.Body)
			}
		})
	}
}
