package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// eventually asks until the answer is yes.
func eventually(t testing.TB, limit time.Duration, what string, ask func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(limit)
	for !ask() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func (p *process) free(key string) bool {
	p.t.Helper()
	st, err := p.Inspect(within(p.t, 10*time.Second), key)
	if err != nil {
		p.t.Fatalf("inspect: %v", err)
	}
	return !st.Held && st.Waiting == 0
}

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	server := redistest.Start(t)
	a := join(t, server.Addr())
	warm(a)
	g := a.take("k", time.Minute)
	flush := func() {
		if err := a.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	if r := a.renew(g, time.Minute); r.Err != nil {
		t.Errorf("renewal after SCRIPT FLUSH: %v", r.Err)
	}
	flush()
	a.release(g)
	flush()
	// Many at once travel in pipelines, which must recover as well.
	gather(200, func(i int) {
		g, err := a.try(fmt.Sprint("k", i), time.Minute)
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
	server := redistest.Start(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	warm(a, b)
	kill := func(kind string) {
		if err := a.client.ClientKillByFilter(t.Context(), "TYPE", kind).Err(); err != nil {
			t.Fatal(err)
		}
	}
	g := a.take("k", time.Minute)
	_, c := b.queue("k", time.Minute)
	kill("pubsub")
	kill("normal")
	// Release may meet a connection that was killed; the engine repeats it.
	eventually(t, 10*time.Second, "release", func() bool { return a.end(g) == nil })
	released := time.Now()
	o := await(t, c)
	if o.err != nil {
		t.Fatal(o.err)
	}
	if late := o.at.Sub(released); late > wake+drivertest.Slack {
		t.Errorf("woken %v after the release", late)
	}
}

func TestWipedServerTellsHolderAndKeepsTokensRising(t *testing.T) {
	server := redistest.Start(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	g := a.take("k", time.Minute)
	server.Restart()
	var r driver.Renewed
	eventually(t, 20*time.Second, "an answer to a renewal", func() bool {
		r = a.renew(g, time.Minute)
		return r.Err == nil || errors.Is(r.Err, driver.ErrNotHeld)
	})
	if r.Err == nil {
		t.Fatal("a renewal has created a lease that was gone")
	}
	if err := a.end(g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of a lease that the server has lost: %v", err)
	}
	var next driver.Grant
	eventually(t, 20*time.Second, "the next grant", func() bool {
		var err error
		next, err = b.try("k", time.Minute)
		return err == nil
	})
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

func TestWaiterOnAWipedServerLosesItsPlace(t *testing.T) {
	server := redistest.Start(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	a.take("k", time.Minute)
	_, c := b.queue("k", time.Minute)
	if err := a.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if o := await(t, c); !errors.Is(o.err, driver.ErrPlaceLost) {
		t.Errorf("a waiter whose queue is gone: %v", o.err)
	}
}

func TestAbandonedHolderAndHeadDelayTheNextByTheirLimits(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	dead, c := join(t, proxy.Addr(), noRetries), join(t, server.Addr())
	warm(dead, c)
	const ttl = 600 * time.Millisecond
	dead.take("k", ttl)
	dead.queue("k", ttl)
	_, next := c.queue("k", time.Minute)
	// Nothing that the first process sends arrives any longer.
	defer proxy.BlackHole(redistest.ToServer)()
	start := time.Now()
	o := await(t, next)
	if o.err != nil {
		t.Fatal(o.err)
	}
	if late := o.at.Sub(start); late > ttl+ttl+wake+drivertest.Slack {
		t.Errorf("granted %v after the others were gone", late)
	}
}

func TestStalledServerHoldsNobodyAndLeavesNothing(t *testing.T) {
	server := redistest.Start(t)
	a := joinWithin(t, server.Addr(), 300*time.Millisecond)
	b := join(t, server.Addr())
	warm(a, b)
	// The goroutine that cleans up starts with the first thing to clean.
	b.take("taken", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	_, c := a.start(ctx, driver.Request{ID: newID("taken"), TTL: time.Minute, Wait: true})
	<-a.sink.waiting
	cancel()
	if o := await(t, c); !errors.Is(o.err, context.Canceled) {
		t.Fatalf("a cancelled wait: %v", o.err)
	}
	gather(64, func(i int) { a.release(a.take(fmt.Sprint("k", i), time.Minute)) })
	before := runtime.NumGoroutine()

	for range 5 {
		func() {
			server.Stop()
			defer server.Cont()
			machine := hiccups.Start(t)
			var late [64]time.Duration
			gather(len(late), func(i int) {
				const patience = 100 * time.Millisecond
				start := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				_, err := a.Acquire(ctx, driver.Request{ID: newID(fmt.Sprint("k", i)), TTL: time.Minute, Wait: i%2 == 0})
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
		eventually(t, 20*time.Second, "the clean-up", func() bool { return b.free(fmt.Sprint("k", i)) })
	}
	eventually(t, 20*time.Second, "goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	a.release(a.take("k0", time.Minute))
}

func TestUnansweredCloseIsBounded(t *testing.T) {
	server := redistest.Start(t)
	a := joinWithin(t, server.Addr(), 300*time.Millisecond)
	warm(a)
	server.Stop()
	defer server.Cont()
	ctx, cancel := context.WithCancel(context.Background())
	_, c := a.start(ctx, driver.Request{ID: newID("k"), TTL: time.Minute, Wait: true})
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
	if took := time.Since(start); took > 150*time.Millisecond+drivertest.Slack {
		t.Errorf("closing took %v", took)
	}
	if _, err := a.try("k", time.Minute); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("acquire after Close: %v", err)
	}
}

func TestOutOfMemoryServerStillReleases(t *testing.T) {
	server := redistest.Start(t)
	a := join(t, server.Addr())
	warm(a)
	g := a.take("k", time.Minute)
	if err := a.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := a.try("other", time.Minute)
	if permanent := new(driver.PermanentError); err == nil || errors.As(err, &permanent) {
		t.Errorf("acquire without memory: %v, want an error that passes", err)
	}
	a.release(g)
}

func TestKeyOfAnotherTypeIsAPermanentError(t *testing.T) {
	server := redistest.Start(t)
	a := join(t, server.Addr())
	if err := a.client.Set(t.Context(), protocol.Key("k"), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.try("k", time.Minute); !errors.As(err, new(*driver.PermanentError)) {
		t.Errorf("acquire on a string: %v", err)
	}
}
