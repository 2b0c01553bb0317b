package connectlock_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/examples/extra/adapters/connectlock"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

func TestHostileClientGetsRoundNoLock(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	probe := &surfacetest.Probe{}
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, func(ctx context.Context, req *request) (*response, error) {
		probe.Acts(ctx, req.Msg.GetSku())
		return connect.NewResponse(&stockpb.Receipt{}), nil
	}, connect.WithInterceptors(connectlock.Lock[stockpb.DeductRequest](locks, core.Policy{Key: "stock:{Sku}"}))))
	surfacetest.HTTP(t, mux, probe, surfacetest.Request{
		Method: "POST", Target: procedure, Header: map[string]string{"Content-Type": "application/json"}, Body: `{"sku":"{}"}`,
	})
}
