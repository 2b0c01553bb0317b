package kit

import (
	"context"
	"sync"
	"time"
)

const (
	firstPause = 10 * time.Millisecond // before the store is asked again to end an owner
	maxPause   = 250 * time.Millisecond
)

// Debt is an owner that was given up, and that the store is to end.
type Debt struct {
	// Limit is how long the store is asked: until it has forgotten the owner by itself, which
	// it does when the TTL is over that the owner's last request asked for. 0 is without a limit.
	Limit time.Duration

	// End asks the store once. It may be called several times, but never twice at a time,
	// with a context that ends with the limit.
	End func(context.Context) error

	// After, if not nil, is closed when the last request that carried the owner is over.
	// End is not called before.
	After <-chan struct{}

	// Over, if not nil, is called when nothing more is tried, whatever has become of the
	// owner. It is not called if the session has ended before.
	Over func()
}

// Debts ends owners that were given up, independently of the calls that gave them up. It
// asks the store again until that has ended the owner, refuses for good, or has forgotten
// the owner by itself. K tells one debt from another.
type Debts[K comparable] struct {
	life  *Life
	owed  *Owed
	turns chan struct{} // holds an element for each request that is under way

	mu    sync.Mutex
	known map[K]bool
}

// NewDebts makes at most atOnce requests at a time.
func NewDebts[K comparable](l *Life, atOnce int) *Debts[K] {
	return &Debts[K]{life: l, owed: NewOwed(l), turns: make(chan struct{}, atOnce), known: make(map[K]bool)}
}

// Owe has a debt paid. One that is owed already stays as it is.
func (d *Debts[K]) Owe(k K, debt Debt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known[k] {
		return
	}
	d.known[k] = true
	d.owed.Add()
	if !d.life.Start(func() { defer d.settle(k); d.pay(debt) }) {
		delete(d.known, k)
		d.owed.Done()
	}
}

func (d *Debts[K]) pay(debt Debt) {
	if debt.Over != nil {
		defer debt.Over()
	}
	if debt.After != nil {
		select {
		case <-debt.After:
		case <-d.life.Ctx.Done():
			return
		}
	}
	ctx := d.life.Ctx
	if debt.Limit > 0 {
		limited, cancel := context.WithTimeout(ctx, debt.Limit)
		defer cancel()
		ctx = limited
	}
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		select {
		case d.turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := debt.End(ctx)
		<-d.turns
		if Final(err) || !Sleep(ctx, pause) {
			return
		}
	}
}

func (d *Debts[K]) settle(k K) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.known, k)
	d.owed.Done()
}

// Drain waits until nothing is owed. It reports false if ctx or the session ends first.
func (d *Debts[K]) Drain(ctx context.Context) bool { return d.owed.Drain(ctx) }

// Owed counts what a store has yet to confirm.
type Owed struct {
	life *Life

	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is 0; nil if nobody waits for that
}

// NewOwed counts from 0.
func NewOwed(l *Life) *Owed { return &Owed{life: l} }

// Add counts one more.
func (o *Owed) Add() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
}

// Done counts one less.
func (o *Owed) Done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n--; o.n == 0 && o.none != nil {
		close(o.none)
		o.none = nil
	}
}

// Drain waits until the count is 0. It reports false if ctx or the session ends first.
func (o *Owed) Drain(ctx context.Context) bool {
	o.mu.Lock()
	if o.n == 0 {
		o.mu.Unlock()
		return true
	}
	if o.none == nil {
		o.none = make(chan struct{})
	}
	none := o.none
	o.mu.Unlock()
	select {
	case <-none:
	case <-ctx.Done():
		return false
	case <-o.life.Ctx.Done():
	}
	return o.life.Ctx.Err() == nil // or else what was owed may have been given up
}
