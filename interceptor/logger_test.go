package interceptor_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestInterceptorLogsWhereItsEngineDoes(t *testing.T) {
	var own bytes.Buffer
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.NewTextHandler(&own, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	server := interceptor.Lock(e, interceptor.Rules{buy: {Key: "k"}}).UnaryServer()
	info := &grpc.UnaryServerInfo{FullMethod: buy}
	_, err = server(t.Context(), &testpb.Request{}, info, func(ctx context.Context, req any) (any, error) {
		return server(ctx, req, info, func(context.Context, any) (any, error) {
			t.Error("the call runs twice under one lock")
			return nil, nil
		})
	})
	if status.Code(err) != codes.Internal || !strings.Contains(own.String(), "LOCK_DEADLOCK") {
		t.Errorf("%v; the engine's log has\n%s", err, &own)
	}
}
