package leader_test

import (
	"context"
	"errors"
	"fmt"
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

var indexer = core.Policy{Key: "indexer", TTL: 10 * time.Second}

// serve is a leader's function that goes on until it is told to return.
func serve(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// campaign runs a candidate until the test ends, or stop is called, which waits for it.
func campaign(t *testing.T, l *leader.Runner) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	stopped := false
	stop = func() error {
		stopped = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	return stop
}

func TestOneCandidateLeadsAndTheNextOneFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		var leaders [3]*leader.Runner
		var stop [3]func() error
		for i := range leaders {
			leaders[i] = leader.Must(roomtest.Engine(t, store), indexer, func(ctx context.Context) error {
				if l, ok := core.LeaseFrom(ctx); !ok || l.Token() != leaders[i].Status().Term {
					t.Errorf("the lease is %v, %t", l, ok)
				}
				return serve(ctx)
			})
			stop[i] = campaign(t, leaders[i])
			synctest.Wait()
		}
		var terms []int64
		for i := range leaders {
			synctest.Wait()
			for k, l := range leaders {
				if l.Status().Leading != (k == i) {
					t.Errorf("candidate %d leads: %t, while %d should", k, l.Status().Leading, i)
				}
			}
			terms = append(terms, leaders[i].Status().Term)
			if err := stop[i](); !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		}
		if terms[0] <= 0 || terms[1] <= terms[0] || terms[2] <= terms[1] {
			t.Errorf("the terms are %v", terms)
		}
	})
}

func TestTermEndsWhenTheFunctionHasReturned(t *testing.T) {
	for name, end := range map[string]func(l *leader.Runner, stop func() error){
		"the leader resigns": func(l *leader.Runner, _ func() error) { _ = l.Resign(context.Background()) },
		"its context ends":   func(_ *leader.Runner, stop func() error) { _ = stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				var inside atomic.Int32
				run := func(ctx context.Context) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d lead at a time", n)
					}
					defer inside.Add(-1)
					<-ctx.Done()
					time.Sleep(time.Minute) // it is long on its way out
					return ctx.Err()
				}
				first, second := leader.Must(roomtest.Engine(t, store), indexer, run), leader.Must(roomtest.Engine(t, store), indexer, run)
				stop := campaign(t, first)
				synctest.Wait()
				campaign(t, second)
				synctest.Wait()
				begun := time.Now()
				end(first, stop)
				if d := time.Since(begun); d != time.Minute {
					t.Errorf("it returned after %v, want when the function had returned", d)
				}
				synctest.Wait()
				if first.Status().Leading || !second.Status().Leading {
					t.Errorf("first %+v, second %+v", first.Status(), second.Status())
				}
			})
		})
	}
}

func TestLeaderIsToldWhyItsTermEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(store *memlock.Driver, e *core.Engine, l *leader.Runner)
		want error
	}{
		"resigned": {func(_ *memlock.Driver, _ *core.Engine, l *leader.Runner) { _ = l.Resign(context.Background()) }, leader.ErrResigned},
		"lost":     {func(s *memlock.Driver, _ *core.Engine, _ *leader.Runner) { s.Expire("shop/indexer") }, core.ErrLost},
		"silent":   {func(s *memlock.Driver, _ *core.Engine, _ *leader.Runner) { s.Stall(); time.Sleep(indexer.TTL) }, core.ErrLost},
		"too long": {func(*memlock.Driver, *core.Engine, *leader.Runner) { time.Sleep(time.Hour) }, core.ErrMaxHold},
		"closed":   {func(_ *memlock.Driver, e *core.Engine, _ *leader.Runner) { _ = e.Close() }, core.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				e := roomtest.Engine(t, store)
				causes := make(chan error, 1)
				p := indexer
				p.MaxHold = time.Hour
				l := leader.Must(e, p, func(ctx context.Context) error {
					<-ctx.Done()
					select {
					case causes <- context.Cause(ctx):
					default:
					}
					return ctx.Err()
				})
				stop := campaign(t, l)
				synctest.Wait()
				tc.end(store, e, l)
				if got := <-causes; !errors.Is(got, tc.want) {
					t.Errorf("the cause is %v, want %v", got, tc.want)
				}
				store.Heal()
				if err := stop(); !errors.Is(err, context.Canceled) && !errors.Is(err, core.ErrClosed) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

func TestLeaderThatDiedIsSucceededWhenItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		d := &roomtest.Captured{Driver: store}
		dead, err := core.New(d, core.WithNamespace("shop"), core.WithStoreTimeout(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		first, second := leader.Must(dead, indexer, serve), leader.Must(roomtest.Engine(t, store), indexer, serve)
		stop := campaign(t, first)
		synctest.Wait()
		campaign(t, second)
		synctest.Wait()
		if err := d.Session.Close(t.Context()); err != nil { // nobody renews any more
			t.Fatal(err)
		}
		begun := time.Now()
		for !second.Status().Leading {
			if time.Sleep(10 * time.Millisecond); time.Since(begun) > time.Minute {
				t.Fatal("nobody leads")
			}
		}
		if d := time.Since(begun); d > indexer.TTL+time.Second {
			t.Errorf("the next one leads after %v", d)
		}
		_ = stop()
		_ = dead.Close()
	})
}

func TestFailedTermsAreFollowedByLongerPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun []time.Time
		fail := errors.New("no index")
		l := leader.Must(roomtest.Engine(t, memlock.New()), indexer, func(context.Context) error {
			begun = append(begun, time.Now())
			if len(begun) < 6 {
				return fail
			}
			return nil
		}, leader.Pause(time.Second, 8*time.Second))
		stop := campaign(t, l)
		time.Sleep(40 * time.Second)
		_ = stop()
		for i, want := range []time.Duration{1, 2, 4, 8, 8, 1, 1} {
			want *= time.Second
			if got := begun[i+1].Sub(begun[i]); got > want || got < want*3/4 {
				t.Errorf("pause %d took %v, want %v or up to a quarter less", i, got, want)
			}
		}
		if s := l.Status(); s.Err != nil || s.Terms != len(begun) || s.Leading {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestStoreThatComesBackGetsItsLeaderBack(t *testing.T) {
	for name, fault := range map[string]error{
		"down":    errors.New("down"),
		"refuses": &driver.PermanentError{Err: errors.New("no permission")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				store.Fail(fault)
				l := leader.Must(roomtest.Engine(t, store), indexer, serve)
				campaign(t, l)
				time.Sleep(10 * time.Minute)
				if s := l.Status(); s.Leading || s.Terms != 0 || name == "refuses" && !errors.Is(s.Err, core.ErrUnavailable) {
					t.Errorf("the status is %+v", s)
				}
				store.Heal()
				time.Sleep(leader.DefaultLongestPause)
				if !l.Status().Leading {
					t.Errorf("the status is %+v", l.Status())
				}
			})
		})
	}
}

func TestPanicOfALeaderGoesOnWhenTheKeyIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := roomtest.Engine(t, memlock.New())
		l := leader.Must(e, indexer, func(context.Context) error { panic("out of index") })
		func() {
			defer func() {
				if r := recover(); r != "out of index" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = l.Run(t.Context())
		}()
		if st, err := e.Inspect(t.Context(), "indexer"); err != nil || st.Held {
			t.Errorf("the key is %+v, %v", st, err)
		}
		if s := l.Status(); s.Leading || s.Err == nil {
			t.Errorf("the status is %+v", s)
		}
	})
}

func TestRunIsRefusedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := leader.Must(roomtest.Engine(t, memlock.New()), indexer, serve)
		campaign(t, l)
		synctest.Wait()
		if err := l.Run(t.Context()); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("a second Run returned %v", err)
		}
	})
}

// TestLeaderGoesOnWhenAnotherEngineIsClosed has a function that uses a store of its own.
func TestLeaderGoesOnWhenAnotherEngineIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, err := core.New(memlock.New(), core.WithNamespace("other"))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		l := leader.Must(roomtest.Engine(t, memlock.New()), indexer, func(ctx context.Context) error {
			return other.Do(ctx, core.Policy{Key: "k"}, func(context.Context) error { return nil })
		})
		stop := campaign(t, l)
		time.Sleep(time.Hour)
		if s := l.Status(); s.Terms < 2 || !errors.Is(s.Err, core.ErrClosed) {
			t.Errorf("the status is %+v", s)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}

// deafEnd is a store that does not answer to releases while it is deaf.
type deafEnd struct {
	*memlock.Driver
	deaf *atomic.Bool
}

func (d deafEnd) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return deafEndSession{s, d}, err
}

type deafEndSession struct {
	driver.Session
	d deafEnd
}

func (s deafEndSession) Release(ctx context.Context, es []driver.Ending) []error {
	if !s.d.deaf.Load() {
		return s.Session.Release(ctx, es)
	}
	<-ctx.Done()
	errs := make([]error, len(es))
	for i := range errs {
		errs[i] = ctx.Err()
	}
	return errs
}

func TestResignSaysThatTheKeyIsNotReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := deafEnd{memlock.New(), new(atomic.Bool)}
		l := leader.Must(roomtest.Engine(t, d), core.Policy{Key: "indexer"}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := roomtest.Begin(func() error { return l.Run(ctx) })
		time.Sleep(time.Second)
		d.deaf.Store(true)
		if err := l.Resign(t.Context()); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("with a store that does not answer: %v; want core.ErrUnavailable", err)
		}
		d.deaf.Store(false)
		time.Sleep(time.Minute)
		if err := l.Resign(t.Context()); err != nil {
			t.Errorf("with one that does: %v", err)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestPanelSaysWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithIdentity("pod-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()
		indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer"}, func(ctx context.Context) error { <-ctx.Done(); return nil })
		roomtest.ExpectCells(t, indexer, "leader", "nobody", "leads here", "false")
		ctx, stop := context.WithCancel(t.Context())
		over := roomtest.Begin(func() error { return indexer.Run(ctx) })
		synctest.Wait()
		roomtest.ExpectCells(t, indexer, "leader", "pod-1", "leads here", "true", "terms here", "1", "term", fmt.Sprint(indexer.Status().Term))
		stop()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestPanelOfAStoreThatDoesNotAnswerSaysSo(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer"}, func(context.Context) error { return nil })
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	if p := indexer.Panel(t.Context()); !errors.Is(p.Err, core.ErrClosed) || p.Title == "" {
		t.Errorf("the panel is %+v", p)
	}
}
