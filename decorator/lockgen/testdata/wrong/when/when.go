package when

import "context"

type till interface {
	//lock:with "stock:{sku}" when=needsLok
	Misspelt(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when=needsLock
	Other(ctx context.Context, sku string, n int) error
	//lock:with "stock:{sku}" when=withContext
	Context(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when=noBool
	Result(ctx context.Context, sku string) error
	//lock:with "stock:{skus[]}" when=slice
	Variadic(ctx context.Context, skus ...string) error
	//lock:with "stock:{sku}" when=generic
	Generic(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when=variable
	Variable(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when=both
	Both(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when="till.both"
	Path(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when
	Value(ctx context.Context, sku string) error
	//lock:with "stock:{sku}" when=both when=needsLock
	Twice(ctx context.Context, sku string) error

	both(sku string) bool
}

func needsLock(sku string) bool                        { return sku != "" }
func withContext(ctx context.Context, sku string) bool { return sku != "" }
func noBool(sku string) error                          { return nil }
func slice(skus []string) bool                         { return true }
func generic[K ~string](sku K) bool                    { return true }
func both(sku string) bool                             { return true }

var variable = needsLock

//lock:with "stock:{sku}" when=both
func function(ctx context.Context, sku string) error { return nil }

//lock:with "stock:{n}" when=misses
func missing(ctx context.Context, n int) error { return nil }
