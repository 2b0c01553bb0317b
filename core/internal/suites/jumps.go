package suites

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

const (
	// ttl is how long the lease of a holder lasts that is not heard of again.
	ttl = time.Second

	// patience ends a run that would wait for an hour to pass, and storeTimeout an attempt.
	// Neither is a promise.
	patience, storeTimeout = 2 * time.Minute, 20 * time.Second
)

// Clocked is a store whose clock can be made to jump.
type Clocked struct {
	Server *testservers.Server

	// Now asks the store what its clock shows.
	Now func() time.Time

	// Join returns a driver of its own, as another process would have it.
	Join func(testing.TB) driver.Driver

	// Lasting says that a jump back makes the lease of a dead holder last longer by as
	// much. Otherwise it lasts for a TTL from then at most.
	Lasting bool
}

// Jumps has callers of three engines use two keys of a store, while its clock jumps by an hour,
// forward and back: few times, or 100 if full counts are asked for, or as many jumps as
// LOCKAROUND_COUNTS says.
//
// A jump forward ends leases early, so that two may believe that they hold a key until the
// first one is told. Tokens rise all the same, a guard refuses what the first one writes
// then, and nobody waits for the hour to pass.
func Jumps(t *testing.T, few int, s Clocked) {
	jumps := counts.Of(t, "jumps", few, 100)
	var users []*core.Engine
	for range 3 {
		e, err := core.New(s.Join(t), core.WithNamespace("test"), core.WithStoreTimeout(storeTimeout), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Errorf("close an engine: %v", err)
			}
		}()
		users = append(users, e)
	}
	r := &run{Clocked: s, machine: hiccups.Start(t), dead: openSilent(t, s.Join(t)), next: openSilent(t, s.Join(t)), bound: 2*ttl + s.Join(t).Capabilities().Wake + drivertest.Slack}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for n := range 4 * len(users) {
		running.Go(func() { r.seen.use(ctx, t, users[n%len(users)], n%2) })
	}
	var err error
	for n := 0; n < jumps && err == nil; n++ {
		by := time.Hour
		if off := s.Server.Ahead(); off > 0 || off == 0 && n%4 == 2 {
			by = -by
		}
		err = r.jump(t, by)
	}
	stop()
	running.Wait()
	if err != nil {
		t.Fatal(err)
	}
	grants, regressions, handedOn, wrong := r.seen.verify(t)
	which := "forward or back"
	if s.Lasting {
		which = "forward (back, it lasts longer by as much)"
	}
	t.Attr("figure-15", fmt.Sprintf("the store's clock jumped %d times by an hour forward or back: %d grants, %d token regressions; "+
		"%d overlaps until the first holder was told, which it handed on %d times meanwhile; %d stale writes refused, %d accepted; behind a dead holder the next one had the key at the latest %v after a jump %s",
		jumps, grants, regressions, r.seen.overlaps, handedOn, r.seen.stale, wrong, r.longest.Round(time.Millisecond), which))
}

// run is a store under the workload of [Jumps].
type run struct {
	Clocked
	machine    *hiccups.Meter
	dead, next *silent
	bound      time.Duration // of who waits behind a dead holder
	longest    time.Duration // that somebody did
	seen       history
}

// jump has the clock jump while somebody waits behind a holder that is not heard of again,
// and sees that this one and all others are served.
func (r *run) jump(t *testing.T, by time.Duration) error {
	behind := by > 0 || !r.Lasting
	type result struct {
		driver.Grant
		error
	}
	done := make(chan result, 1)
	var g driver.Grant
	if behind {
		var err error
		if g, err = r.dead.acquire(t.Context(), "test/dead"); err != nil {
			return fmt.Errorf("acquire: %w", err)
		}
		for len(r.next.waiting) > 0 {
			<-r.next.waiting // of an acquisition that has its grant
		}
		go func() {
			g, err := r.next.acquire(t.Context(), "test/dead")
			done <- result{g, err}
		}()
		select {
		case <-r.next.waiting:
		case got := <-done: // this machine has slept for a TTL
			done <- got
		}
	}
	before, jumped := r.seen.grants(), time.Now()
	r.Server.Jump(by)
	if off := time.Until(r.Now()) - r.Server.Ahead(); off.Abs() > time.Minute {
		return fmt.Errorf("after a jump of %v the store's clock is wrong by %v", by, off)
	}
	if behind {
		got := <-done
		if got.error != nil {
			return fmt.Errorf("the waiter behind a dead holder: %w", got.error)
		}
		waited := time.Since(jumped)
		r.longest = max(r.longest, waited)
		if most := r.machine.Allow(r.bound); waited > most {
			t.Errorf("after a jump of %v a waiter behind a dead holder was granted the key after %v, want at most %v", by, waited, most)
		}
		if got.Token <= g.Token {
			t.Errorf("after a jump of %v token %d was granted after %d", by, got.Token, g.Token)
		}
		if err := r.next.Release(t.Context(), []driver.Ending{{ID: got.ID, Ref: got.Ref, Token: got.Token, Deadline: got.Deadline}})[0]; err != nil {
			return fmt.Errorf("release: %w", err)
		}
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := r.seen.grants(); n[0] == before[0] || n[1] == before[1]; n = r.seen.grants() {
		if time.Since(jumped) > patience {
			return fmt.Errorf("after a jump of %v a key in use was not granted any more", by)
		}
		<-tick.C
	}
	return nil
}

// silent is a session that can be left alone.
type silent struct {
	driver.Session
	waiting chan struct{}
}

func openSilent(t testing.TB, d driver.Driver) *silent {
	t.Helper()
	p := &silent{waiting: make(chan struct{}, 1)}
	s, err := d.Open(driver.Config{Sink: p, StoreTimeout: storeTimeout})
	if err != nil {
		t.Fatal(err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close a session: %v", err)
		}
	})
	return p
}

// Waiting implements [driver.Sink].
func (p *silent) Waiting(driver.ID) {
	select {
	case p.waiting <- struct{}{}:
	default:
	}
}

// Contended implements [driver.Sink].
func (*silent) Contended(driver.ID, bool) {}

// Lost implements [driver.Sink].
func (*silent) Lost(driver.ID, error) {}

// acquire waits for a key, and asks anew if its place is lost.
func (p *silent) acquire(ctx context.Context, key string) (driver.Grant, error) {
	for {
		r := driver.Request{ID: driver.ID{Key: key}, TTL: ttl, Wait: true}
		_, _ = rand.Read(r.Owner[:]) // never fails: crypto/rand ends the program instead
		g, err := p.Acquire(ctx, r)
		if !errors.Is(err, driver.ErrPlaceLost) {
			return g, err
		}
	}
}
