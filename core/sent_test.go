package core_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// late is a store that releases arrive at a second late.
type late struct {
	*memlock.Driver
	after    bool // requests may follow a release
	releases *atomic.Int64
	answer   func() error // of a release; nil is the store's
}

func newLate(after bool) late { return late{memlock.New(), after, new(atomic.Int64), nil} }

func (d late) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.After = d.after
	return c
}

func (d late) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return lateSession{s, d}, err
}

type lateSession struct {
	driver.Session
	d late
}

func (s lateSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.After != nil && !s.d.after {
		return driver.Grant{}, &driver.PermanentError{Err: errors.New("Request.After is not honoured")}
	}
	return s.Session.Acquire(ctx, r)
}

func (s lateSession) Release(ctx context.Context, es []driver.Ending) []error {
	s.d.releases.Add(1)
	time.Sleep(time.Second)
	errs := s.Session.Release(ctx, es)
	if s.d.answer != nil {
		for i := range errs {
			errs[i] = s.d.answer()
		}
	}
	return errs
}

func sent(p core.Policy) core.Policy {
	p.Key, p.Release = "k", core.Sent
	return p
}

func TestSentReleaseReturnsBeforeTheStoreHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLate(true)
		e, other := open(t, d), open(t, d)
		l, start := mustAcquire(t, e, sent(core.Policy{})), time.Now()
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, l.Err(), core.ErrNotHeld)
		mustBe(t, l.Release(t.Context()), core.ErrNotHeld)
		if took := time.Since(start); took > 0 {
			t.Errorf("the release took %v", took)
		}
		_, err := other.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k", Wait: core.Forever}).Release(t.Context()), nil)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the next had the key and gave it back after %v, want 2s", took)
		}
	})
}

// No later request of the process finds the key taken by the lease that it has released.
func TestSentReleaseIsNotOvertaken(t *testing.T) {
	for _, tt := range []struct {
		name        string
		after       bool
		first, next core.Policy
		want        time.Duration // that the next waits
	}{
		{"by a request of the same kind", true, core.Policy{}, core.Policy{}, 0},
		{"where requests cannot follow", false, core.Policy{}, core.Policy{}, time.Second},
		{"by a reader", true, core.Policy{}, core.Policy{Mode: core.Shared}, time.Second},
		{"by a writer", true, core.Policy{Mode: core.Shared}, core.Policy{}, time.Second},
		{"by a reader, of one", true, core.Policy{Mode: core.Shared}, core.Policy{Mode: core.Shared}, 0},
		{"of a semaphore", true, core.Policy{Mode: core.Semaphore, Limit: 1}, core.Policy{Mode: core.Semaphore, Limit: 1}, 0},
		{"with strict fairness", true, core.Policy{Fairness: core.Strict}, core.Policy{Fairness: core.Strict}, time.Second},
		{"of a key that is kept", true, core.Policy{MinHold: time.Second / 2}, core.Policy{}, time.Second},
	} {
		for _, wait := range []time.Duration{0, core.Forever} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newLate(tt.after)
					e, other := open(t, d), open(t, d)
					mustBe(t, mustAcquire(t, e, sent(tt.first)).Release(t.Context()), nil)
					start, next := time.Now(), sent(tt.next)
					next.Wait = wait
					l := mustAcquire(t, e, next)
					if took := time.Since(start); took != tt.want {
						t.Errorf("the next had the key after %v, want %v", took, tt.want)
					}
					time.Sleep(3 * time.Second) // the release arrives, and ends no other lease
					_, err := other.Acquire(t.Context(), core.Policy{Key: "k"})
					mustBe(t, err, core.ErrBusy)
					mustBe(t, l.Release(t.Context()), nil)
				})
			})
		}
	}
}

// A request that was to follow the release has not reached the store, nor has the release.
func TestSentReleaseIsNotOvertakenAfterARequestThatFailed(t *testing.T) {
	for name, tt := range map[string]struct {
		fault func(d late)
		want  error
	}{
		"since the store was down":      {func(d late) { d.Fail(errors.New("down")) }, core.ErrUnavailable},
		"since its caller has given up": {func(d late) { d.Stall() }, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLate(true)
				e := open(t, d)
				mustBe(t, mustAcquire(t, e, sent(core.Policy{})).Release(t.Context()), nil)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				tt.fault(d)
				_, err := e.Acquire(ctx, core.Policy{Key: "k"})
				mustBe(t, err, tt.want)
				d.Heal()
				for range 2 {
					mustBe(t, mustAcquire(t, e, sent(core.Policy{})).Release(t.Context()), nil)
				}
			})
		})
	}
}

func TestStrictServesCallersInOrderAlsoAfterASentRelease(t *testing.T) {
	for _, mode := range []core.Mode{core.Exclusive, core.Shared} {
		t.Run("of a lease that is "+mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLate(true)
				engines := []*core.Engine{open(t, d), open(t, d)}
				strict := sent(core.Policy{Fairness: core.Strict, Wait: core.Forever})
				first := strict
				first.Mode = mode
				mustBe(t, mustAcquire(t, engines[0], first).Release(t.Context()), nil)
				var order []int
				var all sync.WaitGroup
				for i := range 8 { // while the release is on its way
					all.Go(func() {
						mustBe(t, engines[i/2%2].Do(t.Context(), strict, func(context.Context) error {
							order = append(order, i)
							return nil
						}), nil)
					})
					synctest.Wait()
				}
				all.Wait()
				if !slices.IsSorted(order) {
					t.Errorf("served in the order %v", order)
				}
			})
		})
	}
}

func TestCallerInALoopOfSentReleasesNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLate(true)
		e := open(t, d)
		start, token := time.Now(), int64(0)
		for range 100 {
			l := mustAcquire(t, e, sent(core.Policy{}))
			if l.Token() <= token {
				t.Errorf("token %d after %d", l.Token(), token)
			}
			token = l.Token()
			mustBe(t, l.Release(t.Context()), nil)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("100 holds took %v", took)
		}
		time.Sleep(time.Minute)
		if n := d.releases.Load(); n != 100 {
			t.Errorf("%d releases for 100 holds", n)
		}
		if st := inspect(t, e); st.Held || st.Waiting > 0 {
			t.Errorf("in the end the store has %+v", st)
		}
	})
}

func TestSentReleasesOfASemaphoreFreeEveryPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		e := open(t, newLate(true))
		p := sent(core.Policy{Mode: core.Semaphore, Limit: limit})
		for range 5 {
			var all []*core.Lease
			for range limit {
				all = append(all, mustAcquire(t, e, p))
			}
			_, err := e.Acquire(t.Context(), p)
			mustBe(t, err, core.ErrBusy)
			for _, l := range all {
				mustBe(t, l.Release(t.Context()), nil)
			}
		}
		time.Sleep(time.Minute)
		if st := inspect(t, e); st.Held {
			t.Errorf("in the end the store has %+v", st)
		}
	})
}

func TestSentReleaseIsRepeatedUntilTheStoreHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLate(true)
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, sent(core.Policy{TTL: time.Hour}))
		d.Fail(errors.New("down"))
		mustBe(t, l.Release(t.Context()), nil)
		time.Sleep(5 * time.Second)
		d.Fail(nil)
		start := time.Now()
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k", Wait: core.Forever}).Release(t.Context()), nil)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the key was free %v after the store was", took)
		}
	})
}

func TestWhatASentReleaseDidNotHearIsInTheLog(t *testing.T) {
	for name, answer := range map[string]error{"lost": driver.ErrNotHeld, "unavailable": errors.New("secret address")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newLate(true)
				answers := 0
				d.answer = func() error {
					if answers++; answers > 1 {
						return nil
					}
					return answer
				}
				var log bytes.Buffer
				e := open(t, d, core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				mustBe(t, mustAcquire(t, e, sent(core.Policy{Name: "stock"})).Release(t.Context()), nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := strings.Count(log.String(), "did not confirm a release"); n != 1 || !strings.Contains(log.String(), "lock.name=stock") || !strings.Contains(log.String(), "lock.outcome="+name) {
					t.Errorf("the log says so %d times, want once with the policy's name and the outcome %s:\n%s", n, name, log.String())
				}
				if strings.Contains(log.String(), "key=k") {
					t.Errorf("the log tells the key:\n%s", log.String())
				}
			})
		})
	}
}

func TestCloseWaitsForSentReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLate(true)
		e := openUsual(t, d)
		other := open(t, d)
		l := mustAcquire(t, e, sent(core.Policy{TTL: time.Hour}))
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, e.Close(), nil)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

// slowLog takes a second for a line.
type slowLog struct {
	slog.Handler
	lines *atomic.Int64 // that are written
}

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (s slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Second)
	s.lines.Add(1)
	return nil
}

func TestCloseWaitsUntilTheLogSaysWhatASentReleaseDidNotHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newLate(true)
		d.answer = func() error { return driver.ErrNotHeld }
		log := slowLog{slog.DiscardHandler, new(atomic.Int64)}
		e := open(t, d, core.WithLogger(slog.New(log)))
		mustBe(t, mustAcquire(t, e, sent(core.Policy{})).Release(t.Context()), nil)
		mustBe(t, e.Close(), nil)
		if n := log.lines.Load(); n != 1 {
			t.Errorf("%d lines are written when the engine has closed, want 1", n)
		}
	})
}
