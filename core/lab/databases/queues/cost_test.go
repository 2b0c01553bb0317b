package queues_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

// TestRoundTripsAreFew counts what passes the proxy, and compares it with the package's
// documentation.
func TestRoundTripsAreFew(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		link := newProxy(t, d.On.Addr())
		db := d.Connect(t, link.Addr(), d.text)
		q := d.open(t, d.store(t, db), plainRules)
		most := [4]int{5, 5, 7, 6}
		if d.dialect == sqlqueue.MySQL {
			most = [4]int{6, 6, 8, 7}
		}
		names := [4]string{"append", "begin", "end and begin", "end"}
		got := [4]int{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt}
		for i := range int64(5) { // the first uses of a key and of a connection cost more
			h := queue.Holder{Key: "refund:1", Token: i + 1, Worker: "worker", For: time.Hour}
			var s queue.Step
			for n, do := range []func() error{
				func() error {
					_, err := q.Append(t.Context(), h.Key, item(fmt.Sprint(i, "a")))
					return err
				},
				func() (err error) {
					if _, err := d.open(t, d.store(t, d.DB), plainRules).Append(t.Context(), h.Key, item(fmt.Sprint(i, "b"))); err != nil {
						return err
					}
					s, err = q.Begin(t.Context(), h)
					return err
				},
				func() (err error) {
					s, err = q.End(t.Context(), h, queue.Ending{Sequence: s.Item.Sequence, Attempt: 1, Next: true})
					return err
				},
				func() (err error) {
					s, err = q.End(t.Context(), h, queue.Ending{Sequence: s.Item.Sequence, Attempt: 1})
					return err
				},
			} {
				before := link.Count("selects") + link.Count("requests")
				if err := do(); err != nil {
					t.Fatalf("%s: %v", names[n], err)
				}
				got[n] = min(got[n], link.Count("selects")+link.Count("requests")-before)
			}
		}
		for n, name := range names {
			if got[n] > most[n] {
				t.Errorf("%s took %d round trips; want %d", name, got[n], most[n])
			}
		}
		t.Logf("round trips of %q: %v", names, got)
	})
}
