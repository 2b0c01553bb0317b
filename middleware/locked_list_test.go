package middleware

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

type (
	cart struct {
		Shop  string   `uri:"shop" lock:"shop"`
		Items []line   `json:"items" lock:"items"`
		Codes []string `uri:"codes"`
	}
	line struct {
		SKU   string `json:"sku" lock:"sku" uri:"shop"`
		Shelf string `uri:"shelf"`
	}
)

func (c cart) skus() string {
	var all []string
	for _, l := range c.Items {
		all = append(all, "stock:"+l.SKU)
	}
	return strings.Join(all, " ")
}

func TestLockedLocksTheElementsThatWereBoundHoweverTheyWereSent(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/", Locked(e, core.Policy{Keys: []string{"stock:{items[].sku}"}}, func(c *gin.Context, in cart) {
		lease, _ := core.LeaseFrom(c.Request.Context())
		// They are sorted in all requests of this test, and no key comes twice.
		if locked := strings.Join(lease.Keys(), " "); locked != in.skus() {
			t.Errorf("locked %s, bound %s", locked, in.skus())
		}
		c.String(http.StatusOK, in.skus())
	}))
	s := routetest.Serve(t, r)
	for body, want := range map[string]string{
		`{"items":[{"sku":"a"},{"sku":"b"}]}`:                                 "stock:a stock:b",
		`{"ITEMS":[{"SKU":"a"}]}`:                                             "stock:a",
		`{"items":[{"sku":"a"}],"Items":[{"sku":"b"},{"sku":"c"}]}`:           "stock:b stock:c",
		`{"items":[{"sku":"a"},{"sku":"b"}],"items":[{"sku":"c"}]}`:           "stock:c",
		`{"items":[{"sku":"x","Sku":"a"}]}`:                                   "stock:a",
		`{"\u0069tems":[{"s\u212au":"a"},{"sku":"\u0062"}]}`:                  "stock:a stock:b",
		`{"items":[{"sku":"a"}],"items":null}`:                                "",
		`{"items":[]}`:                                                        "",
		`{"items":[null]}`:                                                    "",
		`{"items":[{"sku":"a"},{}]}`:                                          "",
		`{"items":[` + strings.Repeat(`{"sku":"a"},`, 1024) + `{"sku":"a"}]}`: "",
	} {
		a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", body, "Content-Type", "application/json"))
		if want == "" {
			a.MustBe(t, http.StatusBadRequest, "LOCK_KEY_INVALID")
		} else if a.Status != http.StatusOK || a.Body != want {
			t.Errorf("%.80s: got %d %s; want %s", body, a.Status, a.Body, want)
		}
	}
}

func TestListOfThePathAloneIsNotEmptyOnARouteWithoutIt(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	locked := Locked(e, core.Policy{Keys: []string{"code:{Codes[]}"}, AllowEmpty: true}, func(c *gin.Context, _ cart) { tellKey(c) })
	r.POST("/codes/:codes", locked)
	r.POST("/codes", locked)
	elements := Locked(e, core.Policy{Keys: []string{"shelf:{Items[].Shelf}"}}, func(c *gin.Context, _ cart) { tellKey(c) })
	r.POST("/shelves", elements) // the path fills no element
	s := routetest.Serve(t, r)
	post := func(path string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, `{"items":[{"shelf":"3"}]}`, "Content-Type", "application/json"))
	}
	if a := post("/codes/A-1"); a.Body != "code:A-1" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	post("/codes").MustBe(t, http.StatusInternalServerError, "LOCK_POLICY")
	if a := post("/shelves"); a.Body != "shelf:3" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
}

func TestListIsRefusedWhereOneKeyIsWanted(t *testing.T) {
	e, _ := routetest.Open(t)
	_, lock := New(e, core.Policy{Key: "stock:{body.items[].sku}"})
	_, locked := NewLocked(e, core.Policy{Key: "stock:{items[].sku}"}, func(*gin.Context, cart) {})
	_, table := NewTable(e, Rules{"POST /a": {Key: "stock:{body.items[].sku}"}})
	for name, err := range map[string]error{"Lock": lock, "Locked": locked, "Table": table} {
		if err == nil || !strings.Contains(err.Error(), "gives a key for each element of a list, and there is room for one key here; in a policy, put the template into Keys") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := NewLocked(e, core.Policy{Keys: []string{"stock:{body.items[].sku}"}}, func(*gin.Context, cart) {})
	if err == nil || !strings.Contains(err.Error(), "the body is bound into middleware.cart; name the field that holds the value") {
		t.Errorf("got %v", err)
	}
}
