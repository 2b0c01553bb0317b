package core_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// watch begins to watch, until the test ends.
func watch(t *testing.T, e *core.Engine) *core.Watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := e.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		for range w.Changed() {
		}
	})
	return w
}

// keyOf returns what a view has of a key.
func keyOf(v core.View, key string) core.KeyView {
	for _, k := range v.Keys {
		if k.Key == key {
			return k
		}
	}
	return core.KeyView{}
}

func TestWatchShowsAtOnceWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		p := core.Policy{Key: "stock:1", Name: "stock", Wait: time.Minute, TTL: time.Minute}
		l := mustAcquire(t, e, p)
		came := time.Now()
		waited := make(chan error)
		go func() { waited <- e.Do(t.Context(), p, func(context.Context) error { return nil }) }()
		synctest.Wait()
		time.Sleep(3 * time.Second)

		w := watch(t, e)
		v := w.View()
		k := keyOf(v, "stock:1")
		if len(k.Holders) != 1 || len(k.Waiters) != 1 || k.Holding != 1 || k.Waiting != 1 {
			t.Fatalf("%+v", v)
		}
		if h := k.Holders[0]; h.Token != l.Token() || h.Policy != "stock" || !h.Self || !h.Since.Equal(came) || !h.Until.Equal(l.Deadline()) {
			t.Errorf("holder %+v", h)
		}
		if wt := k.Waiters[0]; wt.Policy != "stock" || !wt.Self || !wt.Since.Equal(came) {
			t.Errorf("waiter %+v", wt)
		}
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, <-waited, nil)
		<-w.Changed()
		k = keyOf(w.View(), "stock:1")
		if len(k.Holders)+len(k.Waiters) > 0 || k.Counts.Taken != 1 || k.Counts.HandedOff != 1 || k.Counts.Released != 2 {
			t.Errorf("%+v", k)
		}
		var kinds []core.EventKind
		for _, ev := range k.Events {
			kinds = append(kinds, ev.Kind)
			if ev.Kind == core.EventHandedOn && (ev.Waited != 3*time.Second || ev.Token != l.Token()+1) {
				t.Errorf("%+v", ev)
			}
		}
		slices.Sort(kinds) // all was in one instant
		if want := []core.EventKind{core.EventHandedOn, core.EventReleased, core.EventReleased, core.EventRenewed}; !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
	})
}

func TestWatchIsRefusedAfterClose(t *testing.T) {
	e := open(t, memlock.New())
	mustBe(t, e.Close(), nil)
	if _, err := e.Watch(t.Context()); !errors.Is(err, core.ErrClosed) {
		t.Error(err)
	}
}
