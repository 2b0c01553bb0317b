// Package shelf has structs with locks around their methods.
package shelf

import "context"

// Shelf has methods of both kinds of receivers.
type Shelf struct {
	Base
	Left map[string]int
	Held func(context.Context)
}

// Deduct takes a unit.
//
//lock:with "shelf:{sku}"
func (s *Shelf) Deduct(ctx context.Context, sku string) (int, error) {
	if s.Held != nil {
		s.Held(ctx)
	}
	s.Left[sku]--
	return s.Left[sku], nil
}

// Peek has a value for its receiver.
//
//lock:with "shelf:{sku}" mode=shared
func (s Shelf) Peek(_ context.Context, sku string) (int, error) { return s.Left[sku], nil }

// Twice calls a method of its own.
func (s *Shelf) Twice(ctx context.Context, sku string) (int, error) {
	if _, err := s.Deduct(ctx, sku); err != nil {
		return 0, err
	}
	return s.Deduct(ctx, sku)
}

// Base is embedded.
type Base struct{ Closed int }

// Close is promoted with its lock.
//
//lock:with "close"
func (b *Base) Close(_ context.Context) error {
	b.Closed++
	return nil
}

// Open is promoted.
func (b *Base) Open() error { return nil }

// counter is not exported, nor a struct.
type counter int

//lock:with "count:{by}"
func (c *counter) add(_ context.Context, by int) (err error) {
	*c += counter(by)
	return nil
}
