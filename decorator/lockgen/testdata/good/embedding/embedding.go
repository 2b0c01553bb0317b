// Package embedding has interfaces that embed others.
package embedding

import (
	"context"
	"io"
	. "net/url"
)

// Reader has a lock that who embeds it inherits.
type Reader interface {
	//lock:with "file:{name}" mode=shared
	Read(ctx context.Context, name string) ([]byte, error)
	Stat(ctx context.Context, name string) (int, error)
}

// File redeclares a method to put another lock around it, and one to give it some.
type File interface {
	Reader
	io.Closer
	//lock:with "file:{file}" wait=1s
	Read(ctx context.Context, file string) ([]byte, error)
	//lock:with "file:{name}"
	Write(ctx context.Context, name string, data []byte, u *URL) error
}

// Archive inherits a lock and has one of its own.
type Archive interface {
	Reader
	//lock:with "archive"
	Pack(ctx context.Context) error
}

// Both redeclares what it has from two.
type Both interface {
	Archive
	File
	//lock:with "both:{name}"
	Read(ctx context.Context, name string) ([]byte, error)
}

// Disk embeds an interface in a struct, with its locks.
type Disk struct {
	Archive
	spun int
}

//lock:with "spin"
func (d *Disk) spin(context.Context) error {
	d.spun++
	return nil
}

// Quiet redeclares a method without a directive, which leaves it the one that it has.
type Quiet interface {
	Reader
	Read(ctx context.Context, name string) ([]byte, error)
	//lock:with "quiet"
	Hush(ctx context.Context) error
}

// Box gets its locks from an interface within a struct that it embeds.
type Box struct{ Inner }

// Inner is embedded.
type Inner struct{ Quiet }

// Shut closes the box.
//
//lock:with "shut"
func (Box) Shut(context.Context) error { return nil }
