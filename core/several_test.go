package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// trip is how long each call of a far store takes.
const trip = 10 * time.Millisecond

// far is a store at a distance. Its sessions cannot begin several requests together.
type far struct {
	driver.Driver
	arrived func(driver.Request) // may be nil
}

func (d far) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return farSession{s, d}, err
}

type farSession struct {
	driver.Session
	d far
}

func (s farSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	time.Sleep(trip)
	g, err := s.Session.Acquire(ctx, r)
	if s.d.arrived != nil {
		s.d.arrived(r)
	}
	return g, err
}

func (s farSession) Release(ctx context.Context, es []driver.Ending) []error {
	time.Sleep(trip)
	return s.Session.Release(ctx, es)
}

// cart is a policy of the keys 0 to n-1.
func cart(n int, wait time.Duration) core.Policy {
	p := core.Policy{Name: "cart", Wait: wait}
	for i := range n {
		p.Keys = append(p.Keys, fmt.Sprint(i))
	}
	return p
}

// areFree fails the test unless these keys of a cart can be had at once, and the others cannot.
func areFree(t *testing.T, e *core.Engine, n int, free func(i int) bool) {
	t.Helper()
	for i := range n {
		l, err := e.Acquire(t.Context(), core.Policy{Key: fmt.Sprint(i)})
		if (err == nil) != free(i) {
			t.Errorf("key %d: %v", i, err)
		}
		if err == nil {
			mustBe(t, l.Release(t.Context()), nil)
		}
	}
}

func all(int) bool { return true }

func TestSeveralFreeKeysAreTakenInOneRoundTripAndReleasedInAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, far{Driver: memlock.New()})
		start := time.Now()
		l := mustAcquire(t, e, cart(10, core.Forever))
		if took := time.Since(start); took != trip {
			t.Errorf("they were taken in %v", took)
		}
		start = time.Now()
		mustBe(t, l.Release(t.Context()), nil)
		if took := time.Since(start); took != trip {
			t.Errorf("they were released in %v", took)
		}
	})
}

func TestWhoDoesNotWaitForSeveralKeysIsToldAfterOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, far{Driver: d}), open(t, d)
		for _, taken := range []string{"0", "4", "9"} {
			l := mustAcquire(t, other, core.Policy{Key: taken})
			start := time.Now()
			_, err := e.Acquire(t.Context(), cart(10, 0))
			mustBe(t, err, core.ErrBusy)
			if took := time.Since(start); took > 2*trip { // what it got is given back within the second
				t.Errorf("it took %v", took)
			}
			areFree(t, other, 10, func(i int) bool { return fmt.Sprint(i) != taken })
			mustBe(t, l.Release(t.Context()), nil)
		}
	})
}

func TestKeysBeyondTheFirstThatIsTakenAreNotHeldWhileThatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, far{Driver: d}), open(t, d)
		first, second := mustAcquire(t, other, core.Policy{Key: "3"}), mustAcquire(t, other, core.Policy{Key: "6"})
		got := make(chan *core.Lease)
		go func() { got <- mustAcquire(t, e, cart(10, core.Forever)) }()
		time.Sleep(2*trip + 1) // the batch, and the release beside the request that waits
		areFree(t, other, 10, func(i int) bool { return i > 3 && i != 6 })
		mustBe(t, first.Release(t.Context()), nil)
		time.Sleep(2*trip + 1)
		areFree(t, other, 10, func(i int) bool { return i > 6 })
		mustBe(t, second.Release(t.Context()), nil)
		start := time.Now()
		l := <-got
		if took := time.Since(start); took > trip {
			t.Errorf("the last keys were taken in %v", took)
		}
		areFree(t, other, 10, func(int) bool { return false })
		mustBe(t, l.Release(t.Context()), nil)
		areFree(t, other, 10, all)
	})
}

func TestKeysThatThisProcessHoldsAreNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		e := open(t, far{memlock.New(), func(r driver.Request) { asked = append(asked, r.Key) }})
		held := mustAcquire(t, e, core.Policy{Key: "1"})
		asked = nil
		_, err := e.Acquire(t.Context(), cart(4, 0))
		mustBe(t, err, core.ErrBusy)
		synctest.Wait()
		if len(asked) != 1 || !strings.HasSuffix(asked[0], "/0") {
			t.Errorf("the store was asked for %v", asked)
		}
		mustBe(t, held.Release(t.Context()), nil)
	})
}

func TestSeveralKeysPassNobodyWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		for _, holder := range []*core.Engine{e, other} {
			var order []string
			var callers sync.WaitGroup
			held := mustAcquire(t, holder, core.Policy{Key: "1"})
			take := func(who string, p core.Policy) {
				callers.Go(func() {
					mustBe(t, e.Do(t.Context(), p, func(context.Context) error {
						order = append(order, who)
						time.Sleep(time.Millisecond)
						return nil
					}), nil)
				})
				synctest.Wait()
			}
			take("one", core.Policy{Key: "1", Wait: core.Forever})
			take("cart", cart(3, core.Forever))
			take("another", core.Policy{Key: "1", Wait: core.Forever})
			mustBe(t, held.Release(t.Context()), nil)
			callers.Wait()
			if got := fmt.Sprint(order); got != "[one cart another]" {
				t.Errorf("the order is %v", got)
			}
		}
	})
}

func TestAcquisitionOfSeveralKeysThatFailsLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name string
		// fail makes the acquisition fail, which holds 0 and 1 and waits for 2.
		fail func(d *memlock.Driver, cancel func(), e *core.Engine)
		want error
	}{
		{"the context is cancelled", func(_ *memlock.Driver, cancel func(), _ *core.Engine) { cancel() }, context.Canceled},
		{"the store fails", func(d *memlock.Driver, _ func(), _ *core.Engine) { d.Fail(broken) }, core.ErrUnavailable},
		{"the engine is closed", func(_ *memlock.Driver, _ func(), e *core.Engine) { _ = e.Close() }, core.ErrClosed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				e, other := open(t, far{Driver: d}), open(t, d)
				held := mustAcquire(t, other, core.Policy{Key: "2", TTL: time.Hour})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				time.AfterFunc(time.Second, func() { tc.fail(d, cancel, e) })
				p := cart(5, 10*time.Second)
				p.TTL = 5 * time.Second
				_, err := e.Acquire(ctx, p)
				mustBe(t, err, tc.want)
				var of *core.Error
				if !errors.As(err, &of) || of.Policy != "cart" {
					t.Errorf("the error is %v", err)
				}
				d.Heal()
				time.Sleep(p.TTL)
				areFree(t, other, 5, func(i int) bool { return i != 2 })
				mustBe(t, held.Release(t.Context()), nil)
			})
		})
	}
}

func TestStoreThatFailsForAWhileIsWaitedForWithSeveralKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, far{Driver: d})
		d.Fail(errors.New("broken"))
		time.AfterFunc(3*time.Second, d.Heal)
		l := mustAcquire(t, e, cart(3, 10*time.Second))
		mustBe(t, l.Release(t.Context()), nil)
	})
}

func TestNestedKeyStaysHeldIfTheOthersCannotBeHad(t *testing.T) {
	d := memlock.New()
	e, other := open(t, d), open(t, d)
	taken := mustAcquire(t, other, core.Policy{Key: "2"})
	mustBe(t, e.Do(t.Context(), core.Policy{Key: "1"}, func(ctx context.Context) error {
		p := cart(4, 0)
		_, err := e.Acquire(ctx, p)
		mustBe(t, err, core.ErrDeadlock)
		p.Reentrant = true
		_, err = e.Acquire(ctx, p)
		mustBe(t, err, core.ErrBusy)
		mustBe(t, core.AssertHeld(ctx, "1"), nil)
		areFree(t, other, 4, func(i int) bool { return i == 0 || i == 3 })
		return nil
	}), nil)
	areFree(t, other, 4, func(i int) bool { return i != 2 })
	mustBe(t, taken.Release(t.Context()), nil)
}

func TestMetricsOfSeveralKeysCountEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		d := memlock.New()
		e, other := open(t, far{Driver: d}, core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))), open(t, d)
		held := mustAcquire(t, other, core.Policy{Key: "1"})
		time.AfterFunc(time.Second, func() { _ = held.Release(context.Background()) })
		l := mustAcquire(t, e, cart(4, core.Forever)) // 2 and 3 were given back once
		count := func(of string) (n int64) {
			var rm metricdata.ResourceMetrics
			mustBe(t, reader.Collect(t.Context(), &rm), nil)
			for _, m := range rm.ScopeMetrics[0].Metrics {
				if m.Name != of {
					continue
				}
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						n += p.Value
					}
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						n += int64(p.Count)
					}
				}
			}
			return n
		}
		for of, want := range map[string]int64{"lock.held": 4, "lock.wait.duration": 4, "lock.hold.duration": 0, "lock.waiting": 0} {
			if n := count(of); n != want {
				t.Errorf("%s is %d, want %d", of, n, want)
			}
		}
		mustBe(t, l.Release(t.Context()), nil)
		for of, want := range map[string]int64{"lock.held": 0, "lock.hold.duration": 4} {
			if n := count(of); n != want {
				t.Errorf("after the release %s is %d, want %d", of, n, want)
			}
		}
	})
}
