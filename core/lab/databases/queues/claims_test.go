package queues_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// TestClaimsOfOtherQueuesAreNotInTheWay claims in many queues at once, whose rows are beside each
// other. Nobody else has a key of a queue locked, so that each claim has to find it.
func TestClaimsOfOtherQueuesAreNotInTheWay(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		s := d.store(t, d.DB)
		var all sync.WaitGroup
		for n := range 8 {
			q, err := s.Open(fmt.Sprint("queue", n), plainRules)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				for i := range int64(60) {
					h := queue.Holder{Key: "refund:1", Token: i + 1, Worker: "worker", For: time.Hour}
					if _, err := q.Append(t.Context(), h.Key, item(fmt.Sprint(i))); err != nil {
						t.Error(err)
						return
					}
					c, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: "worker", Max: 5, For: time.Hour})
					if err != nil || !slices.Equal(c.Keys, []string{h.Key}) {
						t.Errorf("claim %d of queue %d: %+v, %v", i, n, c, err)
						return
					}
					s, err := q.Begin(t.Context(), h)
					if err == nil && s.Item != nil {
						_, err = q.End(t.Context(), h, queue.Ending{Sequence: s.Item.Sequence, Attempt: 1})
					}
					if err != nil || s.Item == nil {
						t.Errorf("%+v, %v", s, err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// TestWorkersClaimEachKeyOnce has many workers claim the same keys at once.
func TestWorkersClaimEachKeyOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		q := d.open(t, d.store(t, d.DB), plainRules)
		const keys = 60
		for i := range keys {
			if _, err := q.Append(t.Context(), fmt.Sprint("refund:", i), item("1")); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		claimed := make(map[string]string)
		end := time.Now().Add(patience)
		var all sync.WaitGroup
		for n := range 6 {
			worker := fmt.Sprint("worker ", n)
			all.Go(func() {
				for time.Now().Before(end) {
					c, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: worker, Max: 3, For: time.Hour})
					if err != nil {
						t.Error(errors.Join(errors.New(worker), err))
						return
					}
					mu.Lock()
					for _, k := range c.Keys {
						if other := claimed[k]; other != "" {
							t.Errorf("%s and %s have claimed %s", other, worker, k)
						}
						claimed[k] = worker
					}
					done := len(claimed) == keys
					mu.Unlock()
					if done {
						return
					}
					if len(c.Keys) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				t.Errorf("%d of %d keys were claimed", len(claimed), keys)
			})
		}
		all.Wait()
	})
}
