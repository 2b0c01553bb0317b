package leader_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/leader"
)

// watch is what an observer has heard last, and when.
type watch struct {
	leader.Leadership
	at    time.Time
	times int
}

// observe collects what an observer hears until the test ends.
func observe(t *testing.T, l *leader.Runner) func() watch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	news, err := l.Observe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var seen watch
	ask, over := make(chan chan watch), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case n, more := <-news:
				if !more {
					return
				}
				seen = watch{n, time.Now(), seen.times + 1}
			case a := <-ask:
				a <- seen
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-over
	})
	return func() watch {
		synctest.Wait()
		a := make(chan watch)
		ask <- a
		return <-a
	}
}

func TestObserversHearOfEachTermAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		first := leader.Must(roomtest.Engine(t, store, core.WithIdentity("first")), indexer, serve)
		second := leader.Must(roomtest.Engine(t, store, core.WithIdentity("second")), indexer, serve)
		outside := observe(t, leader.Must(roomtest.Engine(t, store), indexer, serve)) // it does not campaign
		inside := observe(t, first)
		expect := func(what string, term int64, leader string) {
			t.Helper()
			for name, heard := range map[string]func() watch{"outside": outside, "inside": inside} {
				if got := heard(); got.Term != term || got.Leader != leader || got.Mine != (leader == "first" && name == "inside") || term != 0 && got.Since.IsZero() {
					t.Errorf("%s: the observer %s has heard %+v, want term %d of %q", what, name, got, term, leader)
				}
			}
		}
		expect("before any", 0, "")
		time.Sleep(time.Hour)
		stopFirst := campaign(t, first)
		synctest.Wait()
		expect("the first leads", first.Status().Term, "first")
		time.Sleep(time.Hour)
		stopSecond := campaign(t, second)
		synctest.Wait()
		expect("the second waits", first.Status().Term, "first")
		time.Sleep(time.Hour)
		_ = stopFirst()
		synctest.Wait()
		expect("the second leads", second.Status().Term, "second")
		before := second.Status().Term
		_ = second.Resign(t.Context()) // and it is the next leader, perhaps before an observer has its place in the queue
		time.Sleep(time.Second)
		synctest.Wait()
		if second.Status().Term == before {
			t.Fatal("there is no further term")
		}
		expect("the second leads again", second.Status().Term, "second")
		time.Sleep(time.Hour)
		_ = stopSecond()
		synctest.Wait()
		expect("nobody leads", 0, "")
	})
}

// TestObserversHearOfTheLastOfManyTerms has terms come faster than an observer can queue again.
func TestObserversHearOfTheLastOfManyTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		l := leader.Must(roomtest.Engine(t, store), indexer, serve)
		heard := observe(t, leader.Must(roomtest.Engine(t, store), indexer, serve))
		campaign(t, l)
		for range 50 {
			synctest.Wait()
			_ = l.Resign(t.Context())
		}
		time.Sleep(10 * time.Second)
		if got := heard(); got.Term != l.Status().Term {
			t.Errorf("the observer has heard %+v, want term %d", got, l.Status().Term)
		}
	})
}

func TestObserversOfADeadLeaderHearOfItWhenItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		d := &roomtest.Captured{Driver: store}
		dead, err := core.New(d, core.WithNamespace("shop"), core.WithStoreTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		heard := observe(t, leader.Must(roomtest.Engine(t, store), indexer, serve))
		time.Sleep(time.Minute)
		stop := campaign(t, leader.Must(dead, indexer, serve))
		synctest.Wait()
		if heard().Term == 0 {
			t.Fatal("nobody leads")
		}
		if err := d.Session.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		died := time.Now()
		time.Sleep(time.Minute)
		if got := heard(); got.Term != 0 || got.at.Sub(died) > indexer.TTL+time.Second {
			t.Errorf("after %v the observer has heard %+v", got.at.Sub(died), got)
		}
		_ = stop()
		_ = dead.Close()
	})
}

func TestObserversAskNothingWhileNothingHappens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Driver: memlock.New()}
		heard := observe(t, leader.Must(roomtest.Engine(t, store), indexer, serve))
		for name, begin := range map[string]func(){
			"nobody leads": func() {},
			"one leads": func() {
				campaign(t, leader.Must(roomtest.Engine(t, store), indexer, serve))
			},
		} {
			begin()
			time.Sleep(time.Minute)
			heard()
			before := store.count()
			time.Sleep(time.Hour)
			if after := store.count(); after != before {
				t.Errorf("%s: %d acquisitions and questions in an hour", name, after-before)
			}
		}
	})
}

// counting is a driver whose acquisitions and inspections are counted.
type counting struct {
	driver.Driver
	n atomic.Int64
}

func (d *counting) count() int64 { return d.n.Load() }

func (d *counting) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return &countingSession{s, d}, err
}

type countingSession struct {
	driver.Session
	d *counting
}

func (s *countingSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.d.n.Add(1)
	return s.Session.Acquire(ctx, r)
}

func (s *countingSession) Inspect(ctx context.Context, key string) (driver.State, error) {
	s.d.n.Add(1)
	return s.Session.Inspect(ctx, key)
}
