package manager

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
	n    atomic.Int64
	less int64 // by which the token that it says is too small
	late bool  // that may be
}

func (d *inspected) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.LateTokens = d.late
	return c
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
	st, err := s.Session.Inspect(ctx, key)
	st.Token -= s.d.less
	for i := range st.Holders {
		st.Holders[i].Token -= s.d.less
	}
	return st, err
}

// TestCallersTokenIsRecognizedWhereTheStoreLearnsItLate asks for a key in the name of a call that
// holds it in another process.
func TestCallersTokenIsRecognizedWhereTheStoreLearnsItLate(t *testing.T) {
	for _, tt := range []struct {
		name string
		less int64
		late bool
		want Reason
	}{
		{name: "known", want: Deadlock},
		{name: "known, of a store that may be late", late: true, want: Deadlock},
		{name: "not known yet", less: 1500, late: true, want: Deadlock},
		{name: "of an earlier lease", less: 1500, want: Timeout},
		{name: "of a much earlier lease", less: 1_000_000, late: true, want: Timeout},
		{name: "of a later lease", less: -1, late: true, want: Timeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &inspected{Driver: memlock.New(), less: tt.less, late: tt.late}
				hold := openManager(t, store).take(t, testTerms(t, 0), "k")
				defer hold.drop(t)
				mgr := openManager(t, store)
				mgr.Carried = func(context.Context, string) int64 { return hold.Token() }
				terms := testTerms(t, time.Minute)
				if _, r := mgr.Acquire(t.Context(), terms, "k", terms.Wait, nil); r == nil || r.Why != tt.want {
					t.Errorf("%+v, want %v", r, tt.want)
				}
			})
		})
	}
}

// slowlyHeld takes its time to say that a call holds nothing.
type slowlyHeld struct{}

func (slowlyHeld) Holds(others []*Hold) []*Hold {
	time.Sleep(2 * callerGrace)
	return others
}

// TestCallerThatWaitsStartsNothingAfterClose closes a manager between a caller's arrival in the line and
// the look at the token that came with its request.
func TestCallerThatWaitsStartsNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &inspected{Driver: memlock.New()}
		mgr := openManager(t, store)
		mgr.Carried = func(context.Context, string) int64 {
			if r := mgr.Close(); r != nil {
				t.Errorf("%+v", r)
			}
			return 1 << 30
		}
		mgr.take(t, testTerms(t, 0), "k")
		terms := testTerms(t, time.Minute)
		if _, r := mgr.Acquire(t.Context(), terms, "k", terms.Wait, slowlyHeld{}); r == nil || r.Why != Closed {
			t.Errorf("%+v", r)
		}
		if n := store.n.Load(); n > 0 {
			t.Errorf("the store is asked %d times after Close", n)
		}
	})
}
