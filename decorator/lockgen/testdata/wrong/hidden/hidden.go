package hidden

import "context"

type Shelf struct{}

//lock:with "stock:{sku}"
func (*Shelf) Deduct(ctx context.Context, sku string) error { return nil }

//lock:with "stock:{sku}"
func (Shelf) Add(ctx context.Context, sku string) error { return nil }

// Special hides both, and has code generated for it.
type Special struct{ *Shelf }

//lock:with "count"
func (*Special) Count(ctx context.Context) error { return nil }

func (*Special) Deduct(ctx context.Context, sku string) error { return nil }

//lock:with "special:{sku}"
func (Special) Add(ctx context.Context, sku string) error { return nil }

// Cold has no directive at all.
type Cold struct{ Shelf }

func (Cold) Deduct(ctx context.Context, sku string) error { return nil }

// Deep hides what is two structs away.
type Deep struct{ Cold }

func (Deep) Add(ctx context.Context, sku string) error { return nil }

type Stock interface {
	//lock:with "stock:{sku}"
	Take(ctx context.Context, sku string) error
}

// Logging calls what it has inside, which may be the one with locks.
type Logging struct{ Stock }

func (l Logging) Take(ctx context.Context, sku string) error { return l.Stock.Take(ctx, sku) }

// Guarded is no such thing: code is generated for it.
type Guarded struct{ Stock }

//lock:with "guarded"
func (Guarded) Count(ctx context.Context) error { return nil }

func (g Guarded) Take(ctx context.Context, sku string) error { return nil }
