// Package place has directives where none can be.
//
//lock:with "package"
package place

import (
	"context"
	"io"
)

//lock:with "variable"
var variable = func(ctx context.Context) error { return nil }

//lock:with "constant"
const constant = 1

//lock:with "type"
type typ struct {
	//lock:with "field"
	field func(ctx context.Context) error
	inner interface {
		//lock:with "method of a field"
		Method(ctx context.Context) error
	}
}

type embedding interface {
	//lock:with "embedded"
	io.Closer

	//lock:with "parted"

	Parted(ctx context.Context) error
	Beside(ctx context.Context) error //lock:with "beside"
	//lock:with "last"
}

type alias = interface {
	//lock:with "alias"
	Method(ctx context.Context) error
}

//lock:with "parted"

func parted(ctx context.Context) error {
	//lock:with "local"
	local := func(ctx context.Context) error { return nil }
	return local(ctx)
}

// documented has its directive too far up.

//lock:with "documented"

// documented does nothing.
func documented(ctx context.Context) error { return nil }

//lock:with "init"
func init() {}

//lock:with "blank"
func _(ctx context.Context) error { return nil }

func parameter(
	//lock:with "parameter"
	ctx context.Context,
) error {
	return nil
}

//lock:with "receiver"
func (u unknown) method(ctx context.Context) error { return nil }

//lock:with "end"
