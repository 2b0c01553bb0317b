package watch_test

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/watch"
)

// talkative is a driver whose sessions count the messages that they send.
type talkative struct {
	driver.Driver
	told *atomic.Int64
}

func (d talkative) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return talking{s.(gossip), d.told}, err
}

type gossip interface {
	driver.PromptAll
	driver.Gossip
}

type talking struct {
	gossip
	told *atomic.Int64
}

func (s talking) Tell(ctx context.Context, topic string, message []byte) error {
	s.told.Add(1)
	return s.gossip.Tell(ctx, topic, message)
}

// seen waits until a view of w is as it should be, and returns how long that took.
func seen(t *testing.T, w *watch.Watcher, what string, ok func(watch.View) bool) time.Duration {
	t.Helper()
	began := time.Now()
	for range w.Changed() {
		if ok(w.View()) {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			break
		}
	}
	t.Fatalf("%s is not seen: %+v", what, w.View())
	return 0
}

func processOf(v watch.View, identity string) watch.Process {
	for _, p := range v.Processes {
		if p.Identity == identity {
			return p
		}
	}
	return watch.Process{}
}

func TestWatchShowsTheOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a, b := open(t, d, core.WithIdentity("a")), open(t, d, core.WithIdentity("b"))
		p := core.Policy{Key: "stock:1", Name: "stock", Wait: time.Hour, TTL: time.Minute}
		l := mustAcquire(t, b, p)
		came := time.Now()
		time.Sleep(time.Second)
		w := watched(t, a)
		seen(t, w, "the holder in b", func(v watch.View) bool { return len(keyOf(v, "stock:1").Holders) == 1 })
		v := w.View()
		h := keyOf(v, "stock:1").Holders[0]
		if h.Identity != "b" || h.Self || h.Policy != "stock" || h.Token != l.Token() || !h.Since.Equal(came) || h.Until.Sub(l.Deadline()).Abs() > time.Millisecond {
			t.Errorf("holder %+v", h)
		}
		if v.Alone != "" || len(v.Processes) != 2 || processOf(v, "b").Held != 1 {
			t.Errorf("%q, processes %+v", v.Alone, v.Processes)
		}
		mustBe(t, l.Release(t.Context()), nil)
		seen(t, w, "the release in b", func(v watch.View) bool { return keyOf(v, "stock:1").Counts.Released == 1 })
		k := keyOf(w.View(), "stock:1")
		if len(k.Events) != 1 || k.Events[0].Identity != "b" || k.Events[0].Kind != watch.Released || len(k.Holders) > 0 {
			t.Errorf("%+v", k)
		}
		other := open(t, d, core.WithIdentity("elsewhere"), core.WithNamespace("elsewhere"))
		mustBe(t, mustAcquire(t, other, p).Release(t.Context()), nil)
		time.Sleep(time.Minute)
		if p := w.View().Processes; len(p) != 2 {
			t.Errorf("processes of other namespaces are seen: %+v", p)
		}
	})
}

func TestWatchSeesAWaitOfAnotherProcessWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := memlock.New(), new(atomic.Int64)
		a, b := open(t, d, core.WithIdentity("a")), open(t, talkative{d, told}, core.WithIdentity("b"))
		w := watched(t, a)
		seen(t, w, "b", func(v watch.View) bool { return processOf(v, "b").Identity != "" })
		for i := range 20 { // one wait after the other, at different times of the reports
			key := fmt.Sprint("stock:", i)
			p := core.Policy{Key: key, Name: "stock", Wait: time.Hour, TTL: time.Hour}
			l := mustAcquire(t, a, p)
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := make(chan error)
			go func() {
				_, err := b.Acquire(ctx, p)
				gaveUp <- err
			}()
			synctest.Wait()
			took := seen(t, w, "the wait in b", func(v watch.View) bool { return len(keyOf(v, key).Waiters) == 1 })
			if took > time.Second {
				t.Errorf("wait %d was seen after %v", i, took)
			}
			if wt := keyOf(w.View(), key).Waiters[0]; wt.Identity != "b" || wt.Policy != "stock" {
				t.Errorf("%+v", wt)
			}
			time.Sleep(6100 * time.Millisecond)
			cancel()
			mustBe(t, <-gaveUp, context.Canceled)
			mustBe(t, l.Release(t.Context()), nil)
		}
	})
}

func TestWatchedEngineSendsAtMostThirtyMessagesAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := memlock.New(), new(atomic.Int64)
		a, b := open(t, d, core.WithIdentity("a")), open(t, talkative{d, told}, core.WithIdentity("b"))
		w, second := watched(t, a), watched(t, b)
		_, _ = w, second
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		go func() {
			for i := 0; ctx.Err() == nil; i++ { // there is always a new wait to tell of
				p := core.Policy{Key: fmt.Sprint("stock:", i), Name: "stock", Wait: 700 * time.Millisecond, TTL: time.Minute}
				l := mustAcquire(t, a, p)
				_, _ = b.Acquire(ctx, p)
				_ = l.Release(t.Context())
			}
		}()
		for minute := range 3 {
			before := told.Load()
			time.Sleep(time.Minute)
			if n := told.Load() - before; n > 30 || n < 15 {
				t.Errorf("minute %d: %d messages", minute, n)
			}
		}
		synctest.Wait()
	})
}

func TestUnwatchedEngineSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, told := memlock.New(), new(atomic.Int64)
		a, b := open(t, d, core.WithIdentity("a")), open(t, talkative{d, told}, core.WithIdentity("b"))
		p := core.Policy{Key: "stock:1", Name: "stock", TTL: time.Minute}
		l := mustAcquire(t, b, p)
		time.Sleep(time.Hour)
		if n := told.Load(); n != 0 {
			t.Errorf("%d messages while nobody watches", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := watch.New(ctx, a); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := told.Load(); n < 10 {
			t.Errorf("%d messages in a minute while somebody watches", n)
		}
		cancel()
		time.Sleep(time.Minute)
		before := told.Load()
		time.Sleep(time.Hour)
		if n := told.Load() - before; n != 0 {
			t.Errorf("%d messages after the watch", n)
		}
		mustBe(t, l.Release(t.Context()), nil)
	})
}

func TestWatchSaysWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a := open(t, d, core.WithIdentity("a"))
		killed := new(deaf)
		k := open(t, killed.on(d), core.WithIdentity("killed"))
		closed := open(t, d, core.WithIdentity("closed"))
		l := mustAcquire(t, k, core.Policy{Key: "stock:1", TTL: 30 * time.Second, NoRenew: true})
		w := watched(t, a)
		seen(t, w, "both", func(v watch.View) bool { return len(v.Processes) == 3 && len(keyOf(v, "stock:1").Holders) == 1 })
		mustBe(t, closed.Close(), nil)
		if took := seen(t, w, "the end", func(v watch.View) bool { return processOf(v, "closed").Closed }); took > time.Second {
			t.Errorf("an engine that was closed is seen to be after %v", took)
		}
		killed.dead.Store(true)
		dead := time.Now()
		seen(t, w, "the silence", func(v watch.View) bool { return !processOf(v, "killed").Gone.IsZero() })
		if took := time.Since(dead); took < 5*time.Second || took > 11*time.Second {
			t.Errorf("a process that was killed counts as gone after %v", took)
		}
		if p := processOf(w.View(), "killed"); p.Closed || p.Held != 0 {
			t.Errorf("%+v", p)
		}
		if len(keyOf(w.View(), "stock:1").Holders) != 1 {
			t.Error("a lease that the store still has is not shown")
		}
		time.Sleep(20 * time.Second)
		if len(keyOf(w.View(), "stock:1").Holders) != 0 {
			t.Error("a lease that has expired is shown")
		}
		killed.dead.Store(false)
		seen(t, w, "its return", func(v watch.View) bool { return processOf(v, "killed").Gone.IsZero() })
		killed.dead.Store(true)
		time.Sleep(6 * time.Minute)
		if n := len(w.View().Processes); n != 1 {
			t.Errorf("%d processes are shown long after the others are gone", n)
		}
		_ = l.Release(t.Context())
	})
}

// deaf is a process whose messages no longer reach anybody.
type deaf struct{ dead atomic.Bool }

func (d *deaf) on(to driver.Driver) driver.Driver { return deafDriver{to, d} }

type deafDriver struct {
	driver.Driver
	*deaf
}

func (d deafDriver) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return deafSession{s.(gossip), d.deaf}, err
}

type deafSession struct {
	gossip
	*deaf
}

func (s deafSession) Tell(ctx context.Context, topic string, message []byte) error {
	if s.dead.Load() {
		return nil
	}
	return s.gossip.Tell(ctx, topic, message)
}

func TestSettingsOfAPolicyAreThoseInForceInEachProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		a := open(t, d, core.WithIdentity("a"))
		b := open(t, d, core.WithIdentity("b"), core.WithOverrides(map[string]core.Override{"stock": {Wait: new(5 * time.Second), MaxHold: new(time.Minute)}}))
		w := watched(t, a)
		use := func(e *core.Engine) {
			mustBe(t, mustAcquire(t, e, core.Policy{Key: "stock:1", Name: "stock", Wait: time.Second, TTL: 20 * time.Second}).Release(t.Context()), nil)
		}
		settings := func(v watch.View) []watch.Settings {
			for _, p := range v.Policies {
				if p.Name == "stock" {
					return p.Settings
				}
			}
			return nil
		}
		seen(t, w, "b", func(v watch.View) bool { return processOf(v, "b").Identity != "" })
		use(b)
		of := watch.Settings{Wait: 5 * time.Second, TTL: 20 * time.Second, MaxHold: time.Minute, Overridden: []string{"Wait", "MaxHold"}, Processes: 1}
		seen(t, w, "what b has", func(v watch.View) bool { return reflect.DeepEqual(settings(v), []watch.Settings{of}) })
		use(a)
		own := watch.Settings{Wait: time.Second, TTL: 20 * time.Second, Self: true, Processes: 1}
		seen(t, w, "what both have", func(v watch.View) bool { return reflect.DeepEqual(settings(v), []watch.Settings{own, of}) })
		mustBe(t, b.ReplaceOverrides(nil), nil)
		use(b)
		own.Processes = 2
		seen(t, w, "that both agree", func(v watch.View) bool { return reflect.DeepEqual(settings(v), []watch.Settings{own}) })
	})
}
