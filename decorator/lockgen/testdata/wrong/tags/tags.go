package tags

import "context"

type tagged interface {
	//lock:with "{r.sku}"
	Plain(ctx context.Context, r struct {
		SKU string `lock:"s k u"`
	}) error
	//lock:with "{r.SKU}"
	Empty(ctx context.Context, r struct {
		SKU string `lock:""`
	}) error
	//lock:with "{r.SKU}"
	Dash(ctx context.Context, r struct {
		SKU string `lock:"-"`
	}) error
	//lock:with "{r.sku}"
	Twice(ctx context.Context, r twice) error
	//lock:with "{r.Count}"
	Name(ctx context.Context, r struct {
		SKU   string `lock:"Count"`
		Count int
	}) error
	//lock:with "{r.sku}"
	Unexported(ctx context.Context, r struct {
		sku string `lock:"sku"`
	}) error
	//lock:with "{r.inner.sku}:{r.ski}"
	Promoted(ctx context.Context, r promoted) error
}

type twice struct {
	SKU    string `lock:"sku"`
	Number string `lock:"sku"`
}

type promoted struct {
	Inner
	SKU string `lock:"code"`
	Ski string `lock:"sku"`
}

// Inner is promoted.
type Inner struct {
	Code int `lock:"ID"`
	ID   int
}
