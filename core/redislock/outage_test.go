package redislock_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// engineOn returns an engine on the server at addr, with a client of its own.
func engineOn(t testing.TB, addr string, o ...core.Option) *core.Engine {
	t.Helper()
	return engineWith(t, redis.NewClient(&redis.Options{Addr: addr}), o...)
}

// engineWith returns an engine whose client is closed after it.
func engineWith(t testing.TB, rdb *redis.Client, o ...core.Option) *core.Engine {
	t.Helper()
	o = append([]core.Option{core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithStoreTimeout(attempt)}, o...)
	e, err := core.New(redislock.New(rdb), o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Close() // says so if a server that was stopped left work behind
		_ = rdb.Close()
	})
	return e
}

func TestStoppedServerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	s := testservers.Redis(t)
	e := engineOn(t, s.Addr())
	const ttl = 2 * time.Second
	var deadline, told time.Time
	var holder sync.WaitGroup
	taken := make(chan struct{})
	holder.Go(func() {
		err := e.Do(t.Context(), core.Policy{Key: "held", TTL: ttl}, func(ctx context.Context) error {
			close(taken)
			<-ctx.Done()
			told = time.Now()
			l, _ := core.LeaseFrom(ctx)
			if l != nil {
				t.Error("a lost lease is found in the context")
			}
			return nil
		})
		if !errors.Is(err, core.ErrLost) {
			t.Errorf("Do returned %v, want ErrLost", err)
		}
	})
	<-taken
	s.Pause()
	deadline = time.Now().Add(ttl)
	var callers sync.WaitGroup
	took := make([]time.Duration, 64)
	machine := hiccups.Start(t)
	for i := range took {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := e.Acquire(ctx, core.Policy{Key: "k" + strconv.Itoa(i%8), Wait: core.Forever * time.Duration(i%2)})
			took[i] = time.Since(start)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Acquire returned %v, want DeadlineExceeded", err)
			}
		})
	}
	callers.Wait()
	holder.Wait()
	var longest time.Duration
	for _, d := range took {
		longest = max(longest, d)
	}
	t.Logf("64 callers with 100 ms came back in at most %v; the holder was told %v before its TTL was over; the machine oversleeps by up to %v", longest, deadline.Sub(told), machine.Worst())
	if longest > machine.Allow(150*time.Millisecond) {
		t.Errorf("a caller with 100 ms came back after %v", longest)
	}
	if late := told.Sub(deadline); late > machine.Allow(50*time.Millisecond) {
		t.Errorf("the holder was told %v after its deadline", late)
	}
	s.Resume()
	l, err := e.Acquire(t.Context(), core.Policy{Key: "k0", Wait: hang})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseReturnsWhenTheServerIsStopped(t *testing.T) {
	const timeout = 300 * time.Millisecond
	s := testservers.Redis(t)
	e := engineOn(t, s.Addr(), core.WithStoreTimeout(timeout))
	var held *core.Lease
	eventually(t, "a lease", func() bool { // in less than the time-out, which a busy machine may need
		var err error
		held, err = e.Acquire(t.Context(), core.Policy{Key: "k", Wait: core.Forever})
		return err == nil
	})
	s.Pause()
	defer s.Resume()
	var waiting sync.WaitGroup
	for i := range 8 {
		waiting.Go(func() {
			began := time.Now()
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k" + strconv.Itoa(i%2), Wait: core.Forever})
			overdue := errors.Is(err, core.ErrUnavailable) && time.Since(began) >= timeout // before Close could be called
			if !errors.Is(err, core.ErrClosed) && !overdue {
				t.Errorf("Acquire returned %v, want ErrClosed", err)
			}
		})
	}
	machine := hiccups.Start(t)
	start := time.Now()
	if err := e.Close(); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Close returned %v, want ErrUnavailable for what it could not tell the server", err)
	}
	took := time.Since(start)
	waiting.Wait()
	if limit := machine.Allow(2*timeout + 200*time.Millisecond); took > limit {
		t.Errorf("Close took %v, want at most %v", took, limit)
	}
	if !errors.Is(held.Err(), core.ErrClosed) {
		t.Errorf("the lease says %v, want ErrClosed", held.Err())
	}
}

func TestHeldLeaseCostsNoGoroutine(t *testing.T) {
	if testing.Short() {
		t.Skip("holds thousands of leases")
	}
	const n = 10_000
	s := testservers.Redis(t)
	// A connection has up to 64 kB of buffers, and how many there are depends on the machine.
	e := engineWith(t, redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 8}))
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "stock:" + strconv.Itoa(i)
	}
	leases := make([]*core.Lease, n)
	acquire := func(from, to int) {
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for i := from + w; i < to; i += 64 {
					l, err := e.Acquire(t.Context(), core.Policy{Key: keys[i], Name: "stock", TTL: time.Hour})
					if err != nil {
						t.Error(err)
						return
					}
					leases[i] = l
				}
			})
		}
		wg.Wait()
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	acquire(0, 1000) // connections and pools have grown by then
	before, goroutines := heap(), runtime.NumGoroutine()
	acquire(1000, n)
	var each int64
	eventually(t, "at most 720 bytes a lease, once what the calls used is collected", func() bool {
		each = (heap() - before) / (n - 1000)
		return each <= 720
	})
	t.Logf("%d bytes a lease; %d goroutines with 1000 leases, %d with %d", each, goroutines, runtime.NumGoroutine(), n)
	eventually(t, "no more than 32 goroutines more for 9000 leases more", func() bool { return runtime.NumGoroutine()-goroutines <= 32 })
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
