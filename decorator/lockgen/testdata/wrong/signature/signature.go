package signature

import (
	"context"

	"github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/nowhere"
)

type signatures interface {
	//lock:with "a"
	NoContext(sku string) error
	//lock:with "a"
	Nothing()
	//lock:with "a"
	ContextLast(sku string, ctx context.Context) error
	//lock:with "a"
	ContextVariadic(ctx ...context.Context) error
	//lock:with "a"
	NoError(ctx context.Context) int
	//lock:with "a"
	ErrorFirst(ctx context.Context) (error, int)
	//lock:with "a"
	Fault(ctx context.Context) (err *fault)
	//lock:with "a"
	Unknown(ctx context.Context, w *Wigdet) error
	//lock:with "a"
	Import(ctx context.Context, n map[string]nowhere.Thing) error
	//lock:with "a"
	NotThere(ctx context.Context, n foreign.Requst) error
	//lock:with "{r.Unknown}:{r.Unknown.ID}"
	UnknownField(ctx context.Context, r struct{ Unknown Unknown }) error
}

type fault struct{}

func (*fault) Error() string { return "" }

type broken struct {
	Unknown Unknown
	Pointer *Unknown
}

//lock:with "{b.Unknown}:{b.Unknown.ID}:{b.Pointer}"
func withBroken(ctx context.Context, b broken) error { return nil }
