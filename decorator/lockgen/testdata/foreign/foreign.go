// Package foreign has types that other packages cannot use in full.
package foreign

import (
	"context"

	"github.com/lockaround/lockaround/decorator/lockgen/testdata/foreign/internal/deep"
)

type hidden struct{ ID int }

// Hidden is what it is called elsewhere.
type Hidden = hidden

// Request has a field of each kind.
type Request struct {
	Order
	hidden
	*pointer
	SKU    string
	secret string
	Status status
	Deep   *deep.Treasure
	Box    *Box[status]
	Open   *Box[string]
	Any    *struct{ Level int8 }
	Marks  []status
}

// NewRequest returns one with all that others cannot set.
func NewRequest() Request {
	return Request{Deep: &deep.Treasure{Gold: 1}, Box: &Box[status]{"new"}, Open: &Box[string]{"open"}, Any: &struct{ Level int8 }{-1}, Marks: []status{"new", "blue"}}
}

// Box has a type that may not be exported.
type Box[T any] struct{ Value T }

type pointer struct{ Far string }

type status string

// Order is embedded.
type Order struct{ Number int }

// Server has a method that only this package can write.
type Server interface {
	Serve(ctx context.Context, req Request) error
	mustEmbed()
}

// Unimplemented is embedded by those who implement Server.
type Unimplemented struct{}

// Serve does nothing.
func (Unimplemented) Serve(context.Context, Request) error { return nil }
func (Unimplemented) mustEmbed()                           {}

// Secret has a parameter that nobody can write.
type Secret interface {
	Tell(ctx context.Context, s hidden) error
	Dig(ctx context.Context, d deep.Treasure) error
}

// Dive has one that only few can import.
func Dive(context.Context, deep.Treasure, struct{ depth int }) error { return nil }

// Secrets embeds a type that is not exported.
type Secrets struct{ teller }

type teller struct{}

// Tell has a parameter that nobody can write.
func (teller) Tell(context.Context, hidden) error { return nil }
