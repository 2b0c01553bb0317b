package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// patience is how long a buyer waits for others.
const patience = 100 * time.Millisecond

// shop is a program's own code: a sale reads how much is left, and writes one less.
type shop struct {
	left int
	read func() int // stands for the database
}

// newShop returns a shop, and its routes with their locks.
func newShop(locks *core.Engine) (*shop, http.Handler) {
	s := &shop{left: 10}
	s.read = func() int { return s.left }
	lock := httplock.Lock(locks, core.Policy{Name: "deduct", Key: "stock:{path.sku}", Wait: patience})
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}/deduct", lock(http.HandlerFunc(s.deduct)))
	return s, mux
}

func (s *shop) deduct(w http.ResponseWriter, r *http.Request) {
	left := s.read()
	if context.Cause(r.Context()) != nil {
		return // the lock is lost: write nothing, and leave the answer to the lock
	}
	s.left = left - 1
	_, _ = fmt.Fprint(w, s.left, " left")
}

// buy returns the status that a buyer of a book gets.
func buy(routes http.Handler) int {
	w := httptest.NewRecorder()
	routes.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", nil))
	return w.Code
}

// What a handler does when its lease is lost, when the store fails and when it stalls. The
// handler is the program's own; only the driver is another than in production.
func Example_handler() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"), core.WithStoreTimeout(10*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	s, routes := newShop(locks)

	s.read = func() int {
		store.Expire("shop/stock:book") // between reading and writing
		return s.left
	}
	fmt.Println("lost:   ", buy(routes), s.left, "left")

	s.read = func() int { return s.left }
	store.Fail(errors.New("connection refused"))
	fmt.Println("failing:", buy(routes), s.left, "left")

	store.Stall() // no answer: the call ends when its Wait is over
	fmt.Println("silent: ", buy(routes), s.left, "left")

	store.Heal()
	fmt.Println("healed: ", buy(routes), s.left, "left")
	// Output:
	// lost:    500 10 left
	// failing: 503 10 left
	// silent:  503 10 left
	// healed:  200 9 left
}
