package kratoslock_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/lockaround/lockaround/core/surfacetest"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
)

// The message has its value from the path, the query or the body, and the lock from the message.
func TestHostileClientGetsRoundNoLock(t *testing.T) {
	probe := &surfacetest.Probe{}
	s := open(t, "stock:{sku}", func(ctx context.Context, r *stockpb.DeductRequest) (*stockpb.Receipt, error) {
		probe.Acts(ctx, r.GetSku())
		return &stockpb.Receipt{}, nil
	})
	surfacetest.HTTP(t, s.http, probe,
		surfacetest.Request{Method: "POST", Target: "/products/{}/deduct"},
		surfacetest.Request{Method: "POST", Target: "/products/{}/deduct", Header: map[string]string{"Content-Type": "application/json"}},
	)
	var messages [][]byte
	for _, sku := range []string{"book", "Book", "pen"} {
		raw, err := proto.Marshal(&stockpb.DeductRequest{Sku: sku})
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, raw)
	}
	surfacetest.GRPC(t, s.addr, probe, surfacetest.Call{Method: method, Messages: messages})
}
