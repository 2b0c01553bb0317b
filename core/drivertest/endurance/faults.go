package endurance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

// Stores that are restarted, or have lost everything, never go back to a number.
var (
	restarts  = outage("restarts", "TokensRiseAcrossRestarts", restarting, func(h *drivertest.Harness) func() { return h.Restart })
	evictions = outage("evictions of all data", "TokensRiseAcrossEvictions", evicting, func(h *drivertest.Harness) func() { return h.Evict })
	losses    = outage("losses of all data", "TokensRiseAcrossLossOfData", wiping, func(h *drivertest.Harness) func() { return h.Wipe })
)

// outage is the figure of one kind of outage.
func outage(what, name string, ability need, of func(*drivertest.Harness) func()) figure {
	return figure{
		number: 14, name: name, full: 100, few: 1, lanes: 4,
		needs: []need{issuingTokens, ability},
		try: func(l *lane, n int) {
			o := &outages{lane: l, processes: []*process{l.process(l.h.Driver), l.process(l.peer())}}
			o.grants()
			l.rounds(n, 1, func(_, n int) {
				of(l.h)()
				o.grants()
			})
		},
		text: func(r *record) string {
			return fmt.Sprintf("%s %s: 0 token regressions", count(r.done), what)
		},
	}
}

type outages struct {
	*lane
	processes []*process
	last      [8]int64 // token of each key
}

// grants takes every key by every process, and compares its token with the one before.
func (o *outages) grants() {
	each(len(o.last), func(i int) {
		for _, p := range o.processes {
			g, err := p.take(numbered("outage", i), o.short())
			if err != nil {
				o.t.Errorf("acquire after an outage: %v", err)
				return
			}
			if g.Token <= o.last[i] {
				o.t.Errorf("token %d was granted after token %d", g.Token, o.last[i])
			}
			o.last[i] = g.Token
			_ = g.end() // which may find its lease forgotten
		}
	})
}

const (
	callersTime   = 100 * time.Millisecond // what a caller's context allows for
	callersReturn = 150 * time.Millisecond // when he is back
)

// silences has callers with little time ask an engine whose store does not answer.
var silences = figure{
	number: 11, name: "SilentStoreReturnsCallersInTime", full: 10_000, few: 100, alone: true,
	needs: []need{stalling},
	try: func(l *lane, n int) {
		s := &silent{lane: l, engine: l.engine(l.h.Driver)}
		s.silence(100)
		s.quiet()
		before := inventory()
		resume := l.undone(l.h.Stall())
		l.rounds(n, 100, func(_, n int) { s.callers(n) })
		resume()
		s.quiet()
		// A pool of connections may have grown up to its size; a leak goes on.
		for range 7 {
			if s.settles(before) {
				return
			}
			before = inventory()
			s.silence(100)
			s.quiet()
		}
		if !s.settles(before) {
			l.t.Errorf("%v after a silence of 100 calls: %+v, before it %+v, and so after each one", settled, inventory(), before)
		}
	},
	text: func(r *record) string {
		return fmt.Sprintf("%s calls with 100ms against a silent store: all back in time, 0 goroutines or connections leaked; longest %s", count(r.done), r.most())
	},
}

type silent struct {
	*lane
	engine *core.Engine
}

func (s *silent) silence(callers int) {
	resume := s.undone(s.h.Stall())
	defer resume()
	s.callers(callers)
}

// callers ask all at once, for keys of their own and for shared ones, to wait or not.
func (s *silent) callers(n int) {
	each(n, func(i int) {
		key, wait := numbered("silence", i), time.Duration(0)
		if i%2 == 0 {
			key = numbered("silence", i%10)
		}
		if i%4 < 2 {
			wait = core.Forever
		}
		ctx, cancel := context.WithTimeout(context.Background(), callersTime)
		defer cancel()
		asked := time.Now()
		lease, err := s.engine.Acquire(ctx, core.Policy{Key: key, Wait: wait})
		s.waited(s.t, asked, time.Now(), callersReturn, "a call with 100ms while the store was silent")
		switch {
		case err == nil:
			s.t.Error("success while the store is silent")
			_ = lease.Release(ctx)
		case !errors.Is(err, context.DeadlineExceeded):
			s.t.Errorf("a call with 100ms while the store was silent returned %v, not DeadlineExceeded", err)
		}
	})
}

// quiet waits until the store has answered for the keys, behind what was left of those
// who had given up.
func (s *silent) quiet() {
	each(100, func(i int) {
		h, err := s.hold(s.engine, numbered("silence", i), s.long())
		if err != nil {
			s.t.Errorf("acquire after a silence: %v", err)
			return
		}
		s.leave(h, "a lease after a silence")
	})
}

// stock is what a process must not have more and more of.
type stock struct{ goroutines, connections int }

// inventory counts. Connections are 0 where there is no /proc.
func inventory() stock {
	now := stock{goroutines: runtime.NumGoroutine()}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return now
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			now.connections++
		}
	}
	return now
}

// settled is how long what was given up may go on: an attempt of the engine's for three.
const settled = 4 * time.Second

// settles waits until there is no more than before, and reports whether that comes.
func (s *silent) settles(before stock) bool {
	end := time.Now().Add(settled)
	for now := inventory(); now.goroutines > before.goroutines || now.connections > before.connections; now = inventory() {
		if time.Now().After(end) {
			return false
		}
		yield()
	}
	return true
}

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
