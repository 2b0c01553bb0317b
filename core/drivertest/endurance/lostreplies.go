package endurance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

// lostReplies loses the replies of requests that were executed. The caller then gets
// his lease, or leaves a ghost: an owner of whom nobody knows whether he holds.
var lostReplies = figure{
	number: 4, name: "LostRepliesGrantNothingTwice", full: 3000, few: 30, lanes: 8,
	needs: []need{dropping, aWayPast},
	try: func(l *lane, n int) {
		d := &drops{lane: l, p: l.process(l.h.Driver), other: l.process(l.peer())}
		tries := []func(i int) error{d.ofAcquire, d.ofRenew, d.ofRelease}
		l.rounds(n, 1, func(i, _ int) {
			if err := tries[i%len(tries)](i / len(tries)); err != nil {
				l.t.Errorf("lost reply %d: %v", i, err)
			}
		})
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s lost replies of acquire, renew and release: 0 double grants; longest ghost %s", count(r.done), r.most())
	},
}

type drops struct {
	*lane
	p, other *process
}

// ghost is how long somebody may block others of whose request the reply was lost.
func (d *drops) ghost() time.Duration { return d.short() + grace + d.caps.Wake }

// ofAcquire gives up soon every other time. Who asks a key for which nobody has ever
// given up, and that is free, must not find it held: by whom if not by himself?
func (d *drops) ofAcquire(i int) error {
	wait, brief := i%4 < 2, i%2 == 1
	key, limit := "acquire", patience
	if brief {
		key, limit = "acquire:brief", 50*time.Millisecond
	}
	dropped := d.h.DropReply(drivertest.OpAcquire)
	for {
		err := d.attempt(key, wait, limit)
		if isHeld(err) && !brief {
			return errors.New("an acquire whose reply was lost found the key held by itself")
		}
		if err := d.successor(time.Now(), d.other.enqueue(key, d.short())); err != nil {
			return err
		}
		switch {
		case dropped():
			return nil
		case limit == patience:
			return fmt.Errorf("the harness did not drop the reply; the acquire returned %w", err)
		}
		limit = patience // before, it did not get as far as the request
	}
}

// attempt asks for the key and releases it if it is granted, which another one must
// not be meanwhile: see claims.
func (d *drops) attempt(key string, wait bool, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	g, err := d.p.acquire(ctx, d.request(key, d.short(), wait))
	if err != nil {
		return err
	}
	if second, err := d.other.acquire(ctx, d.request(key, d.short(), false)); err == nil {
		defer func() { _ = second.end() }() // the claims tell whether it was too soon
	}
	return g.end()
}

// ofRenew has another one wait, whom a renewal that is sent again after the release
// would keep waiting.
func (d *drops) ofRenew(int) error {
	const key = "renew"
	g, err := d.p.take(key, d.short())
	if err != nil {
		return err
	}
	next := d.other.enqueue(key, d.short())
	dropped := d.h.DropReply(drivertest.OpRenew)
	err = g.renew(d.short())
	if !dropped() {
		return fmt.Errorf("the harness did not drop the reply; the renewal returned %w", err)
	}
	if errors.Is(err, driver.ErrNotHeld) && time.Now().Before(g.Deadline) {
		return errors.New("a renewal whose reply was lost reported its lease as not held")
	}
	if err := g.end(); err != nil {
		return err
	}
	return d.successor(time.Now(), next)
}

// ofRelease has another one wait every other time, who may hold already when the release
// is sent again. Once more it is sent when he holds for certain.
func (d *drops) ofRelease(i int) error {
	const key = "release"
	g, err := d.p.take(key, d.short())
	if err != nil {
		return err
	}
	var next *waiter
	if i%2 == 0 {
		next = d.other.enqueue(key, d.short())
	}
	dropped := d.h.DropReply(drivertest.OpRelease)
	err = g.end()
	back := time.Now()
	if !dropped() {
		return fmt.Errorf("the harness did not drop the reply; the release returned %w", err)
	}
	if err != nil {
		return err
	}
	if next == nil {
		next = d.other.enqueue(key, d.short())
	}
	return d.successor(back, next, g)
}

// successor waits for the grant to the next one, which nobody ends but himself, also not
// a late copy of the release of another lease.
func (d *drops) successor(free time.Time, w *waiter, released ...*lease) error {
	g, err := w.wait()
	if err != nil {
		return fmt.Errorf("the next one: %w", err)
	}
	d.waited(d.t, free, g.back, d.ghost(), "the grant to the next one after a lost reply")
	for _, before := range released {
		_ = before.release() // whatever it is told
	}
	if err := g.renew(d.short()); errors.Is(err, driver.ErrNotHeld) && time.Now().Before(g.Deadline) {
		return errors.New("the lease of the next one was ended by another one")
	}
	return g.end()
}

func isHeld(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held)
}
