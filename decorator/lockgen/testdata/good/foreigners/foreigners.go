// Package foreigners puts locks around types of another package.
package foreigners

import (
	"context"

	other "github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign"
)

// Server embeds an interface that only its own package can implement.
type Server interface {
	other.Server
	//lock:with "serve:{req.SKU}:{req.Number}:{req.Status}:{req.ID}"
	Serve(ctx context.Context, req other.Request) error
}

// Impl is a server by the other package's leave.
type Impl struct {
	other.Unimplemented
	other.Secret
	Served int
}

// Serve hides the promoted one.
//
//lock:with "serve:{req.SKU}" wait=forever
func (i *Impl) Serve(_ context.Context, req other.Request) error {
	i.Served++
	return nil
}

var _ other.Server = (*ImplWithLock)(nil)

// Tell takes a type by the name that it has elsewhere.
//
//lock:with "tell:{h.ID}"
func Tell(_ context.Context, h other.Hidden) error { return nil }

// Dig goes through types that this package cannot write, and one that it can.
//
//lock:with "dig:{req.Deep.Gold}:{req.Box.Value}:{req.Any.Level}:{req.Open.Value}"
func Dig(_ context.Context, req *other.Request, by other.Request) error { return nil }

// DigBy gets its request by value.
//
//lock:with "dig:{by.Deep.Gold}:{by.Box.Value}:{by.Any.Level}:{by.Open.Value}"
func DigBy(_ context.Context, by other.Request) error { return nil }
