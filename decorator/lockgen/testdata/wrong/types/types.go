package types

import "context"

type constraint interface {
	~int | ~string
	//lock:with "a"
	Method(ctx context.Context) error
}

type one interface {
	//lock:with "one"
	Get(ctx context.Context) error
}

type two interface {
	//lock:with "two"
	Get(ctx context.Context) error
}

type ambiguous interface {
	one
	two
	//lock:with "put"
	Put(ctx context.Context) error
}

type blank[_ any] interface {
	//lock:with "blank"
	Get(ctx context.Context) error
}

//lock:with "blank"
func blanks[_ any](ctx context.Context) error { return nil }

type circle interface {
	//lock:with "circle"
	Get(ctx context.Context, w *circleWithLock) error
}

type field struct{ Deduct int }

//lock:with "field"
func (f field) Deduct(ctx context.Context) error { return nil }

type double struct{}

//lock:with "once"
func (d double) Deduct(ctx context.Context) error { return nil }

//lock:with "twice"
func (d double) Deduct(ctx context.Context) error { return nil }
