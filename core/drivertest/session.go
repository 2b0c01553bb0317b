package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var setupChecks = []check{
	{"SetupBesideTrafficHarmsNobody", needs(settingUp), setupHarmsNobody},
}

// setupHarmsNobody sets the store up again and again, as processes do that start, while
// others take keys and one renews leases whose TTL is short. On a machine that oversleeps
// much of that TTL a lease may rightly be lost; then it tries a longer one.
func setupHarmsNobody(f *fixture) {
	for ttl := f.short(); ; ttl *= 4 {
		began := time.Now()
		err := f.setUpBesideTraffic(fmt.Sprintf("%s:%v", f.key, ttl), ttl)
		if err == nil {
			return
		}
		if f.allow(0) < ttl/2 || f.longest(ttl) {
			f.t.Fatalf("beside a set-up: %v", err)
		}
		f.t.Logf("with a TTL of %v, after %v: %v", ttl, time.Since(began), err)
	}
}

// setUpBesideTraffic returns the first harm done.
func (f *fixture) setUpBesideTraffic(key string, ttl time.Duration) error {
	holder := f.process()
	var held []driver.Renewal
	for i := range 4 {
		l, err := holder.try(fmt.Sprintf("%s:%d", key, i), ttl)
		if err != nil {
			return fmt.Errorf("acquire of a free key: %w", err)
		}
		held = append(held, l.renewal(ttl))
	}
	ctx, cancel := context.WithCancelCause(f.patient())
	defer cancel(nil)
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("%s: %w", what, err))
		}
	}
	var traffic, setups sync.WaitGroup
	traffic.Go(func() {
		for ctx.Err() == nil {
			for _, r := range holder.s.Renew(ctx, held) {
				failed("renewal of a lease that is held", r.Err)
			}
			pause(ctx, ttl/10)
		}
	})
	for range 2 {
		p := f.process()
		for range 2 {
			traffic.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					g, err := p.s.Acquire(ctx, f.waiting(fmt.Sprintf("%s:taken:%d", key, i%2), f.long()))
					if errors.Is(err, driver.ErrPlaceLost) {
						continue
					}
					failed("acquire", err)
					if err == nil {
						e := driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
						failed("release", p.s.Release(f.patient(), []driver.Ending{e})[0])
					}
					pause(ctx, time.Millisecond)
				}
			})
		}
	}
	for range 4 {
		setups.Go(func() {
			for range 5 {
				failed("setting the store up", f.h.Setup(ctx))
				pause(ctx, ttl/20)
			}
		})
	}
	f.finish(&setups, "setting the store up")
	err := context.Cause(ctx)
	cancel(nil)
	f.finish(&traffic, "traffic beside a set-up")
	return err
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

var closingChecks = []check{
	{"CloseEndsWaits", nil, closeEndsWaits},
	{"ClosedSessionRefuses", nil, closedSessionRefuses},
	{"CloseKeepsGrantedLeases", nil, closeKeepsGrantedLeases},
	{"CloseLeavesNoGoroutine", nil, closeLeavesNoGoroutine},
}

func (p *process) close() {
	p.f.t.Helper()
	ctx := p.f.prompt()
	if err := within(p.f, promptness+grace+Slack, "Close", func() error { return p.s.Close(ctx) }); err != nil {
		p.f.t.Errorf("Close: %v", err)
	}
}

func closeEndsWaits(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	first, second := b.queue(f.key), c.queue(f.key)
	closed := make(chan error, 1)
	ctx := f.prompt()
	go func() { closed <- b.s.Close(ctx) }()
	if _, err := first.ended(grace+Slack, "a wait whose session was closed"); !errors.Is(err, driver.ErrClosed) {
		f.t.Errorf("a wait whose session was closed returned %v, not ErrClosed", err)
	}
	if err := await(f, promptness+grace+Slack, "Close", closed); err != nil {
		f.t.Errorf("Close: %v", err)
	}
	if st := f.state(f.key); st.Waiting != f.places(1) {
		f.t.Errorf("after the session of one of two waiters was closed, Inspect says %+v", st)
	}
	second.stillWaits()
	l.drop()
	second.granted(f.handOver(), "the grant to the one behind a closed session").drop()
}

func closedSessionRefuses(f *fixture) {
	p := f.process()
	l := p.take(f.key, f.long())
	p.close()
	p.close()
	ctx := f.patient()
	calls := map[string]func() error{
		"Ping":    func() error { return p.s.Ping(ctx) },
		"Acquire": func() error { _, err := p.s.Acquire(ctx, f.request(f.key, f.long())); return err },
		"Acquire that waits": func() error {
			_, err := p.s.Acquire(ctx, f.waiting(f.key, f.long()))
			return err
		},
		"Renew": func() error {
			out := p.s.Renew(ctx, []driver.Renewal{l.renewal(f.long())})
			if len(out) != 1 {
				return errors.New("not one result for one renewal")
			}
			return out[0].Err
		},
		"Release": func() error {
			errs := p.s.Release(ctx, []driver.Ending{l.ending()})
			if len(errs) != 1 {
				return errors.New("not one result for one release")
			}
			return errs[0]
		},
		"Oust":    func() error { return p.s.Oust(ctx, f.key, 1) },
		"Inspect": func() error { _, err := p.s.Inspect(ctx, f.key); return err },
	}
	if lister, ok := p.s.(driver.Lister); ok {
		calls["List"] = func() error { _, err := lister.List(ctx, f.key, "", 10); return err }
	}
	for name, do := range calls {
		if err := within(f, grace+Slack, name+" of a closed session", do); !errors.Is(err, driver.ErrClosed) {
			f.t.Errorf("%s of a closed session returned %v, not ErrClosed", name, err)
		}
	}
	p.close()
}

func closeKeepsGrantedLeases(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	a.close()
	if st := f.state(f.key); !st.Held {
		f.t.Error("Close released a lease; the engine does that before, or means it to last")
	}
	if _, err := b.try(f.key, f.long()); err == nil {
		f.t.Error("a key whose holder's session was closed was granted to another owner")
	}
	// Whoever knows the owner may end the lease by another session.
	if err := b.end(l.ending())[0]; err != nil {
		f.t.Errorf("release by another session of the same store: %v", err)
	}
	b.take(f.key, f.long()).drop()
}

// closeLeavesNoGoroutine opens, uses and closes sessions and counts the
// goroutines that remain. It looks at those only that were started on the way,
// by the label that goroutines inherit, since other tests run at the same time;
// and it counts how they grow with each session, since what a client library
// keeps for its connections is not the session's.
func closeLeavesNoGoroutine(f *fixture) {
	const warm, sessions = 2, 8
	label := pprof.Labels("drivertest", f.key)
	cycle := func() {
		a, b := f.process(), f.process()
		l := a.take(f.key, f.long())
		w, withdrawn := b.queue(f.key), b.queue(f.key)
		withdrawn.cancel()
		_, err := withdrawn.ended(grace+Slack, "a wait that was cancelled")
		if err == nil {
			f.t.Error("a wait that was cancelled was granted while another owner held the key")
		}
		l.drop()
		l = w.granted(f.handOver(), "the waiter's grant after a release")
		l.holds()
		open := a.queue(f.key)
		a.close()
		if _, err := open.ended(grace+Slack, "a wait whose session was closed"); err == nil {
			f.t.Error("a wait whose session was closed was granted while another owner held the key")
		}
		l.drop()
		b.close()
	}
	f.state(f.key) // opens the observer, which stays
	pprof.Do(context.Background(), label, func(context.Context) {
		for range warm {
			cycle()
		}
	})
	before := f.settle(func(n int) bool { return n == 0 })
	pprof.Do(context.Background(), label, func(context.Context) {
		for range sessions {
			cycle()
		}
	})
	grown := f.settle(func(n int) bool { return n <= before }) - before
	if grown >= sessions {
		f.t.Errorf("%d sessions were opened and closed, and %d goroutines remain:\n%s", 2*sessions, grown, f.goroutines())
	}
}

// settle counts the goroutines of this check until enough have ended, or for
// as long as ended ones may need on a busy machine.
func (f *fixture) settle(enough func(int) bool) int {
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n := 0
		for _, group := range strings.Split(f.goroutines(), "\n\n") {
			n += count(group)
		}
		if enough(n) || time.Since(began) > f.allow(Slack) {
			return n
		}
		<-tick.C
	}
}

// goroutines returns the stacks of the goroutines that carry this check's
// label, but for its own: each group starts with "n @".
func (f *fixture) goroutines() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		f.t.Fatalf("read the goroutines: %v", err)
	}
	_, groups, _ := strings.Cut(all.String(), "\n") // after the line with the total
	var mine []string
	for _, group := range strings.Split(groups, "\n\n") {
		if strings.Contains(group, f.key) && !strings.Contains(group, "drivertest.(*fixture).goroutines") {
			mine = append(mine, group)
		}
	}
	return strings.Join(mine, "\n\n")
}

// count returns the number before the @ of a group.
func count(group string) int {
	n := 0
	for _, r := range group {
		if r < '0' || r > '9' {
			break
		}
		n = n*10 + int(r-'0')
	}
	return n
}
