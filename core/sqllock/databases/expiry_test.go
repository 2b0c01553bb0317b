package databases_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

// TestLeaseOfTheDeadEndsWithALook has a lease end that nobody renews in front of each of
// several sessions, which look at their places every three quarters of a second by then.
// Without a look of its own most of them would leave their waiter beside a free key.
func TestLeaseOfTheDeadEndsWithALook(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		t.Parallel()
		dead := open(t, d.locks(t, d.DB), 5*time.Second)
		type result struct {
			late time.Duration
			err  error
		}
		const n = 8
		results := make(chan result, n)
		for i := range n {
			r := request(fmt.Sprint("key ", i), false)
			r.TTL = 4 * time.Second
			held, err := dead.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			p := open(t, d.locks(t, d.DB, sqllock.WithPoll(10*time.Second)), 5*time.Second)
			go func() {
				g, err := p.Acquire(t.Context(), request(r.Key, true))
				late := time.Since(held.Deadline)
				if err == nil {
					err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
				}
				results <- result{late, err}
			}()
			<-p.queued
		}
		var late []time.Duration
		for range n {
			r := <-results
			if r.err != nil {
				t.Fatal(r.err)
			}
			late = append(late, r.late)
		}
		slices.Sort(late)
		if late[n*3/4] > 200*time.Millisecond {
			t.Errorf("the waiters were let in so long after the ends of the leases: %v", late)
		}
	})
}
