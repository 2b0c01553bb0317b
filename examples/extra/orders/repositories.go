package main

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

//go:generate go tool lockgen

// What the repositories refuse.
var (
	errNoOrder   = errors.New("there is no such order")
	errStatus    = errors.New("the order's status does not allow it")
	errNoProduct = errors.New("there is no such product")
	errSoldOut   = errors.New("there are not so many units left")
	errCredit    = errors.New("the customer would owe too much")
)

// Order is an order. Its ID, customer, product, units and price never change.
type Order struct {
	ID       string
	Customer string
	SKU      string
	Units    int64
	Cents    int64 // for all units
	Status   orderspb.Status
}

// Orders are those that were placed. Whoever goes by what one of them says holds its lock,
// "order:" and its ID, as the service's methods do by their options.
type Orders interface {
	// Find returns an order, or errNoOrder. It is one read, and takes no lock.
	Find(ctx context.Context, id string) (Order, error)

	// Add keeps an order that Find does not know. It is one write, and takes no lock.
	Add(ctx context.Context, o Order) error

	// Move changes the status of an order that has one of those in from; errStatus if it
	// has another one, errNoOrder if there is none.
	//
	// It reads, and then writes, so it has the order's lock. A call that holds it already,
	// as CancelOrder's and RefundOrder's do, comes in with that one, which is what reentrant
	// is for; one that does not, as ImportShipments', waits for its turn.
	//
	//lock:with "order:{id}" name=move wait=5s reentrant
	Move(ctx context.Context, id string, to orderspb.Status, from ...orderspb.Status) (Order, error)
}

// Stock is how many units there are of each product.
type Stock interface {
	// Take takes units of a product and returns the price of one in cents, or errNoProduct
	// or errSoldOut.
	//
	//lock:with "stock:{sku}" name=take wait=5s
	Take(ctx context.Context, sku string, units int64) (cents int64, err error)

	// PutBack undoes a Take. It waits for as long as it has to, for half of what its caller
	// does may be done.
	//
	//lock:with "stock:{sku}" name=put-back wait=forever
	PutBack(ctx context.Context, sku string, units int64) error

	// Units returns how many there are. It is one read, and takes no lock.
	Units(ctx context.Context, sku string) (int64, error)
}

// Payments is what customers owe.
type Payments interface {
	// Charge adds to what a customer owes, or returns errCredit.
	//
	//lock:with "account:{customer}" name=charge wait=5s
	Charge(ctx context.Context, customer string, cents int64) error

	// PayBack undoes a Charge, and waits as PutBack does.
	//
	//lock:with "account:{customer}" name=pay-back wait=forever
	PayBack(ctx context.Context, customer string, cents int64) error

	// Owed returns what a customer owes in cents. It is one read, and takes no lock.
	Owed(ctx context.Context, customer string) (int64, error)
}
