package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// eventually waits until something holds.
var eventually = testkit.Until

func (p *process) free(key string) bool {
	p.t.Helper()
	st, err := p.Inspect(bounded(p.t), key)
	if err != nil {
		p.t.Fatalf("inspect: %v", err)
	}
	return !st.Held && st.Waiting == 0
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	g := a.take("k", lasting)
	flush := func() {
		if err := a.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	if r := a.renew(g, lasting); r.Err != nil {
		t.Errorf("renewal after SCRIPT FLUSH: %v", r.Err)
	}
	flush()
	a.release(g)
	flush()
	// Many at once travel in pipelines, which must recover as well.
	gather(200, func(i int) {
		g, err := a.try(fmt.Sprint("k", i), lasting)
		if err != nil {
			t.Errorf("acquire after SCRIPT FLUSH: %v", err)
			return
		}
		if i%50 == 0 {
			flush()
		}
		if err := a.end(g); err != nil {
			t.Errorf("release after SCRIPT FLUSH: %v", err)
		}
	})
}

func TestKilledConnectionsAreReplaced(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	warm(a, b)
	kill := func(kind string) {
		if err := a.client.ClientKillByFilter(t.Context(), "TYPE", kind).Err(); err != nil {
			t.Fatal(err)
		}
	}
	g := a.take("k", lasting)
	_, c := b.queue("k", lasting)
	machine := hiccups.Start(t)
	kill("pubsub")
	kill("normal")
	// Release may meet a connection that was killed; the engine repeats it.
	eventually(t, "release", func() bool { return a.end(g) == nil })
	released := time.Now()
	o := await(t, c)
	if o.err != nil {
		t.Fatal(o.err)
	}
	wokenInTime(t, machine, o.at.Sub(released))
}

func TestWipedServerTellsHolderAndKeepsTokensRising(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	g := a.take("k", lasting)
	server.Restart()
	var r driver.Renewed
	eventually(t, "an answer to a renewal", func() bool {
		r = a.renew(g, lasting)
		return r.Err == nil || errors.Is(r.Err, driver.ErrNotHeld)
	})
	if r.Err == nil {
		t.Fatal("a renewal has created a lease that was gone")
	}
	if err := a.end(g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of a lease that the server has lost: %v", err)
	}
	var next driver.Grant
	eventually(t, "the next grant", func() bool {
		var err error
		next, err = b.try("k", lasting)
		return err == nil
	})
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

func TestWaiterOnAWipedServerLosesItsPlace(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	a.take("k", lasting)
	_, c := b.enqueue(b.Acquire, "k", lasting)
	if err := a.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if o := await(t, c); !errors.Is(o.err, driver.ErrPlaceLost) {
		t.Errorf("a waiter whose queue is gone: %v", o.err)
	}
}

func TestAbandonedHolderAndHeadDelayTheNextByTheirLimits(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	proxy := redistest.NewProxy(t, server.Addr())
	dead, c := joinWithin(t, proxy.Addr(), outage, noRetries), join(t, server.Addr())
	warm(dead, c)
	const ttl = 600 * time.Millisecond
	// The key is held until all have their places, however long that takes.
	g := c.take("k", lasting)
	dead.queue("k", ttl)
	dead.queue("k", ttl)
	_, next := c.queue("k", lasting)
	machine := hiccups.Start(t)
	// Nothing that the first process sends arrives any longer.
	defer proxy.BlackHole(redistest.ToServer)()
	c.release(g)
	start := time.Now()
	o := await(t, next)
	if o.err != nil {
		t.Fatal(o.err)
	}
	wokenInTime(t, machine, o.at.Sub(start)-ttl-ttl)
}

func TestStalledServerHoldsNobodyAndLeavesNothing(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	warm(a, b)
	// The goroutine that cleans up starts with the first thing to clean.
	b.take("taken", lasting)
	ctx, cancel := context.WithCancel(t.Context())
	_, c := a.start(ctx, driver.Request{ID: newID("taken"), TTL: lasting, Wait: true})
	<-a.sink.waiting
	cancel()
	if o := await(t, c); !errors.Is(o.err, context.Canceled) {
		t.Fatalf("a cancelled wait: %v", o.err)
	}
	gather(64, func(i int) { a.release(a.take(fmt.Sprint("k", i), lasting)) })
	before := runtime.NumGoroutine()

	for range 5 {
		func() {
			server.Pause()
			defer server.Resume()
			machine := hiccups.Measure(t)
			defer machine.Stop()
			var late [64]time.Duration
			gather(len(late), func(i int) {
				const patience = 100 * time.Millisecond
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, err := a.Acquire(ctx, driver.Request{ID: newID(fmt.Sprint("k", i)), TTL: lasting, Wait: i%2 == 0})
				late[i] = time.Since(start) - patience
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("acquire: %v", err)
				}
			})
			for _, d := range late {
				if d > machine.Allow(50*time.Millisecond) {
					t.Errorf("back %v after the context's end; the machine oversleeps by %v", d, machine.Worst())
				}
			}
		}()
	}
	for i := range 64 {
		eventually(t, "the clean-up", func() bool { return b.free(fmt.Sprint("k", i)) })
	}
	eventually(t, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	a.release(a.take("k0", lasting))
}

func TestUnansweredCloseIsBounded(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	server.Pause()
	defer server.Resume()
	machine := hiccups.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	_, c := a.start(ctx, driver.Request{ID: newID("k"), TTL: lasting, Wait: true})
	cancel()
	if o := await(t, c); !errors.Is(o.err, context.Canceled) {
		t.Errorf("acquire: %v", o.err)
	}
	limit, stop := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	start := time.Now()
	if err := a.Close(limit); err == nil {
		t.Log("nothing was left to clean up")
	}
	if took := time.Since(start); took > machine.Allow(150*time.Millisecond) {
		t.Errorf("closing took %v", took)
	}
	if _, err := a.try("k", lasting); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("acquire after Close: %v", err)
	}
}

func TestOutOfMemoryServerStillRenewsAndReleases(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	g := a.take("k", lasting)
	if err := a.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if out := a.Renew(bounded(t), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: lasting}}); out[0].Err != nil {
		t.Errorf("renewal without memory: %v", out[0].Err)
	}
	_, err := a.try("other", lasting)
	if permanent := new(driver.PermanentError); err == nil || errors.As(err, &permanent) {
		t.Errorf("acquire without memory: %v, want an error that passes", err)
	}
	a.release(g)
}

func TestKeyOfAnotherTypeIsAPermanentError(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	if err := a.client.Set(t.Context(), protocol.Key("k"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.try("k", lasting); !errors.As(err, new(*driver.PermanentError)) {
		t.Errorf("acquire on a string: %v", err)
	}
}
