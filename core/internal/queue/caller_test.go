package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// inspected counts how often a store is asked for the state of a key.
type inspected struct {
	driver.Driver
	n atomic.Int64
}

func (d *inspected) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return inspectedSession{s, d}, err
}

type inspectedSession struct {
	driver.Session
	d *inspected
}

func (s inspectedSession) Inspect(ctx context.Context, key string) (driver.State, error) {
	s.d.n.Add(1)
	return s.Session.Inspect(ctx, key)
}

// slowlyHeld takes its time to say that a call holds nothing.
type slowlyHeld struct{}

func (slowlyHeld) Holds(others []*Hold) []*Hold {
	time.Sleep(2 * callerGrace)
	return others
}

// TestCallerThatWaitsStartsNothingAfterClose closes a queue between a caller's arrival in the line and
// the look at the token that came with its request.
func TestCallerThatWaitsStartsNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &inspected{Driver: memlock.New()}
		q := openQueue(t, store)
		q.Carried = func(context.Context, string) int64 {
			if r := q.Close(); r != nil {
				t.Errorf("%+v", r)
			}
			return 1 << 30
		}
		q.take(t, testTerms(t, 0), "k")
		terms := testTerms(t, time.Minute)
		if _, r := q.Acquire(t.Context(), terms, "k", terms.Wait, slowlyHeld{}); r == nil || r.Why != Closed {
			t.Errorf("%+v", r)
		}
		if n := store.n.Load(); n > 0 {
			t.Errorf("the store is asked %d times after Close", n)
		}
	})
}
