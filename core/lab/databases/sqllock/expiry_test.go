package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/sqllock"
)

// TestLeaseOfTheDeadEndsWithAPoll makes several sessions wait for leases that nobody renews.
// By then the sessions poll every three quarters of a second. Without a poll
// at the lease's end most waiters would miss that their key is free.
func TestLeaseOfTheDeadEndsWithAPoll(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		machine := hiccups.Start(t)
		dead := open(t, d.locks(t, d.DB))
		type result struct {
			late time.Duration
			err  error
		}
		const n = 8
		results := make(chan result, n)
		for i := range n {
			p := open(t, d.locks(t, d.DB, sqllock.WithPoll(10*time.Second)))
			r := request(fmt.Sprint("key ", i), false)
			r.TTL = 4 * time.Second
			held, err := dead.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			over := make(chan struct{})
			go func() {
				g, err := p.Acquire(t.Context(), request(r.Key, true))
				for errors.Is(err, driver.ErrPlaceLost) { // the machine has stalled for as long as places last
					g, err = p.Acquire(t.Context(), request(r.Key, true))
				}
				late := time.Since(held.Deadline)
				close(over)
				if err == nil {
					err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
				}
				results <- result{late, err}
			}()
			select {
			case <-p.queued:
			case <-over: // the machine was so slow that the lease had ended
			}
		}
		slowest := d.measureSlowest(t)
		var late []time.Duration
		for range n {
			r := <-results
			if r.err != nil {
				t.Fatal(r.err)
			}
			late = append(late, r.late)
		}
		slices.Sort(late)
		const most = 200 * time.Millisecond
		if limit := machine.Allow(most) + 2*slowest(); late[n*3/4] > limit {
			t.Errorf("the waiters were let in so long after the ends of the leases: %v, want %v, or %v on this machine", late, most, limit)
		}
	})
}

// measureSlowest acquires and releases a key every 50 ms until the returned function is
// called, which returns how long that took at most: the load of the server.
func (d *database) measureSlowest(t *testing.T) func() time.Duration {
	t.Helper()
	p := open(t, d.locks(t, d.DB))
	ctx, cancel := context.WithCancel(t.Context())
	worst := make(chan time.Duration, 1)
	go func() {
		var most time.Duration
		for ctx.Err() == nil {
			began := time.Now()
			g, err := p.Acquire(t.Context(), request("another", false))
			if err == nil {
				err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
			}
			if err != nil {
				if ctx.Err() == nil { // otherwise the test has ended
					t.Errorf("another key: %v", err)
				}
				break
			}
			most = max(most, time.Since(began))
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		worst <- most
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}

// TestInspectShowsTheTokenOfALeaseThatHasExpired reads it before the next request, whose decision
// would remove the lease and note its token.
func TestInspectShowsTheTokenOfALeaseThatHasExpired(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		for range 2 {
			g, err := p.Acquire(t.Context(), request("stock", false))
			if err != nil {
				t.Fatal(err)
			}
			d.Must(t, `UPDATE lockaround_claim SET expires_us = 1`)
			st, err := p.Inspect(t.Context(), "stock")
			if err != nil || st.Token != g.Token || st.Held || len(st.Holders) > 0 {
				t.Errorf("after the end of token %d: %+v, %v", g.Token, st, err)
			}
		}
	})
}
