package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

const (
	units    = 10 // in stock at first
	unitsOfA = 3
	unitsOfB = 4

	// lease is what A is granted, and does not renew: its process stands still.
	lease = time.Second

	key = "stock:book"
)

var policy = core.Policy{Key: key, Wait: core.Forever}

func demonstrate(ctx context.Context, addr string, out io.Writer) error {
	fmt.Fprintf(out, "%d units in stock. A sells %d of them, B sells %d: %d have to be left.\n", units, unitsOfA, unitsOfB, units-unitsOfA-unitsOfB)
	for _, guarded := range []bool{false, true} {
		left, err := race(ctx, addr, guarded, out)
		if err != nil {
			return err
		}
		switch want := units - unitsOfA - unitsOfB; {
		case left == want:
			fmt.Fprintf(out, "  left: %d, as it should be\n", left)
		case guarded:
			return fmt.Errorf("with a guard: %d units are left; %d expected", left, want)
		default:
			fmt.Fprintf(out, "  left: %d, and not %d: what B sold is in stock again\n", left, want)
		}
	}
	return nil
}

// race has A pause between its reading and its writing until B has sold, and returns
// how many units are left.
func race(ctx context.Context, addr string, guarded bool, out io.Writer) (left int, err error) {
	p, err := open(ctx, addr, guarded)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	with := "with the lock alone"
	if guarded {
		with = "with the lock, and a guard that checks its token in the steps that read and write"
	}
	fmt.Fprintf(out, "\n%s, %s:\n", with, p.name)
	r := &runner{place: p, out: out, start: time.Now()}

	reading, sold := make(chan struct{}), make(chan struct{})
	a := make(chan error, 1)
	go func() {
		p := policy
		p.TTL, p.NoRenew = lease, true
		a <- r.sell(ctx, p, "A", unitsOfA, func() {
			close(reading)
			<-sold // whatever has become of the lease: it looks no more
			r.say("A", "goes on after a pause that it knows nothing of")
		})
	}()
	var errB error
	select {
	case <-reading:
		errB = r.sell(ctx, policy, "B", unitsOfB, func() {})
		close(sold)
		err = <-a
	case err = <-a:
	}
	switch {
	case errB != nil:
		return 0, errB
	case errors.Is(err, fence.ErrStale):
		r.say("A", "is refused, and begins anew")
		err = r.sell(ctx, policy, "A", unitsOfA, func() {})
	case errors.Is(err, core.ErrLost):
		r.say("A", "is told that it had lost the lock, too late")
		err = nil
	}
	if err != nil {
		return 0, err
	}
	return p.stock.units(ctx)
}

// runner says what happens, and when.
type runner struct {
	*place
	out   io.Writer
	start time.Time
}

// say is called by one goroutine at a time: they take turns.
func (r *runner) say(who, format string, a ...any) {
	fmt.Fprintf(r.out, "  %4.2f s  %s %s\n", time.Since(r.start).Seconds(), who, fmt.Sprintf(format, a...))
}

// sell reads how many units there are and writes what is left of them, in two steps,
// under the lock. pause is called between the two.
func (r *runner) sell(ctx context.Context, p core.Policy, who string, n int, pause func()) error {
	return r.locks.Do(ctx, p, func(ctx context.Context) error {
		token, err := fence.For(ctx, key) // before the reading
		if err != nil {
			return err
		}
		have, err := r.stock.read(ctx, token)
		if err != nil {
			return err
		}
		r.say(who, "has the lock with token %d and reads %d", token.Number, have)
		pause()
		ctx = context.WithoutCancel(ctx) // its request is on the way already
		if err := r.stock.write(ctx, token, have-n); err != nil {
			return err
		}
		r.say(who, "writes %d", have-n)
		return nil
	})
}
