package lists

import "context"

type line struct {
	SKU  string `lock:"sku"`
	Tags []string
}

type cart struct {
	ID    int
	Lines []line
	Raw   []byte
	By    map[string]line
	Deep  []cart
}

type till interface {
	//lock:with "stock:{cart.Lines}"
	Whole(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Lines.SKU}"
	Field(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Lines[]}"
	Struct(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Lines[].skv}"
	Misspelt(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Deep[].Lines[].SKU}"
	Nested(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Lines[].SKU}:{skus[]}"
	Two(ctx context.Context, cart cart, skus []string) error
	//lock:with "stock:{cart.ID[]}"
	NoList(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Raw[]}"
	Bytes(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.By[].SKU}"
	Map(ctx context.Context, cart cart) error
	//lock:with "stock:{cart.Deep[].Lines.SKU}"
	Inner(ctx context.Context, cart cart) error
	//lock:with "stock:{cart[].ID}"
	Source(ctx context.Context, cart cart) error
	//lock:with "stock:{skus}"
	Variadic(ctx context.Context, skus ...string) error
	//lock:with "stock:{skus}"
	Slice(ctx context.Context, skus []string) error
	//lock:with "stock:{skus[]sku}"
	Marks(ctx context.Context, skus []string) error
	//lock:with "stock:{[].sku}"
	Nameless(ctx context.Context, skus []string) error
	//lock:with "stock:{sku}" allowempty
	Empty(ctx context.Context, sku string) error
	//lock:with "stock:{skus[]}" allowempty=true
	Value(ctx context.Context, skus []string) error
}
