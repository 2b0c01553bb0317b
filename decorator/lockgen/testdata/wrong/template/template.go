package template

import (
	"context"

	"github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign"
)

type request struct {
	SKU    string
	Weight float64
	Order  struct{ ID int }
	Next   *request
}

type keys interface {
	//lock:with "stock:{sku"
	Open(ctx context.Context, sku string) error
	//lock:with "stock:sku}"
	Close(ctx context.Context, sku string) error
	//lock:with "stock:{}"
	Nameless(ctx context.Context, sku string) error
	//lock:with "stock:{{sku}}"
	Nested(ctx context.Context, sku string) error
	//lock:with "stock:{ sku}"
	Blank(ctx context.Context, sku string) error
	//lock:with "été\t\u00e9:{sku}{n}"
	Joined(ctx context.Context, sku string, n int) error
	//lock:with "stock:{skuu}:{m}"
	Misspelt(ctx context.Context, sku string, n int) error
	//lock:with "stock:{ctx}"
	Context(ctx context.Context, sku string) error
	//lock:with "stock:{SKU}"
	Outer(ctx context.Context, req request) error
	//lock:with "stock:{req}"
	Struct(ctx context.Context, req request) error
	//lock:with "stock:{req.sku}:{req.Ordr.ID}:{req.Order.Number}:{req.Next.Next.Weight}"
	Fields(ctx context.Context, req *request) error
	//lock:with "stock:{req.}:{req..SKU}:{.}"
	Dots(ctx context.Context, req request) error
	//lock:with "stock:{req.SKU.Len}"
	Deeper(ctx context.Context, req request) error
	//lock:with "stock:{sku}"
	Unnamed(context.Context, string) error
	//lock:with "stock:{_}"
	Underscore(ctx context.Context, _ string) error
	//lock:with "stock:{skus}"
	Variadic(ctx context.Context, skus ...string) error
	//lock:with "stock:{skus}:{set}:{fn}:{any}:{ratio}:{address}"
	Kinds(ctx context.Context, skus []string, set map[string]bool, fn func(), any any, ratio float64, address uintptr) error
	//lock:with "stock:{sku}"
	Nothing(ctx context.Context) error
	//lock:with "stock:{req.secret}:{req.Far}:{req.Secret}"
	Foreign(ctx context.Context, req foreign.Request) error
}

//lock:with "stock:{key}:{value.SKU}:{pair.Key}"
func generic[K comparable, V request, P struct{ Key K }](ctx context.Context, key K, value V, pair P) error {
	return nil
}

//lock:with "stock:{key}"
func mixed[K ~int | ~string](ctx context.Context, key K) error { return nil }

type left struct{ Code int }

type right struct{ Code int }

//lock:with "{both.Code}:{both.code}:{both.left}"
func ambiguous(ctx context.Context, both struct {
	left
	right
}) error {
	return nil
}
