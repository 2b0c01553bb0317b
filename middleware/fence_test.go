package middleware

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// tellToken answers with the number of the token of a product's lock, as c has it and
// as the request has it.
func tellToken(c *gin.Context) {
	key := "stock:" + core.Escape(c.Param("sku"))
	direct, _ := fence.For(c, key)
	token, err := fence.For(c.Request.Context(), key)
	c.String(http.StatusOK, "%d %d %v", direct.Number, token.Number, err)
}

func TestTokenOfAClientsLeaseReachesTheHandler(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/products/:sku", Fence(&fence.Memory{}, "stock:{path.sku}"), tellToken)
	s := routetest.Serve(t, r)
	client := s.Client()
	client.Transport = httplock.SendTokens(client.Transport)
	err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, func(ctx context.Context) error {
		lease, _ := core.LeaseFrom(ctx)
		a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/products/a", "").WithContext(ctx))
		if want := fmt.Sprintf("%d %[1]d <nil>", lease.Token()); a.Body != want {
			t.Errorf("the handler got %q; want %q", a.Body, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
