package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/core/watch"
)

// seen waits until a view of w is as it should be.
func seen(t *testing.T, w *watch.Watcher, what string, ok func(watch.View) bool) {
	t.Helper()
	ctx, began := bounded(t), time.Now()
	for {
		select {
		case <-w.Changed():
		case <-ctx.Done():
			t.Fatalf("%s is not seen: %+v", what, w.View())
		}
		if ok(w.View()) {
			t.Logf("%s is seen after %v", what, time.Since(began).Round(time.Millisecond))
			return
		}
	}
}

func viewOf(v watch.View, key string) watch.Key {
	for _, k := range v.Keys {
		if k.Key == key {
			return k
		}
	}
	return watch.Key{}
}

func watchOf(t *testing.T, e *engine) *watch.Watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := watch.New(ctx, e.Engine)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWatchShowsAnotherProcessUntilItIsKilled(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	w := watchOf(t, newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()})))
	told := struct{ Addr, Key string }{server.Addr(), "stock:1"}
	holder, err := child.Start(t, suites.Holder, told)
	if err != nil {
		t.Fatal(err)
	}
	seen(t, w, "the holder", func(v watch.View) bool { return len(viewOf(v, "stock:1").Holders) == 1 })
	h := viewOf(w.View(), "stock:1").Holders[0]
	if h.Self || h.Token == 0 || h.Identity == "" {
		t.Errorf("%+v", h)
	}
	seen(t, w, "its renewals", func(v watch.View) bool { return viewOf(v, "stock:1").Counts.Renewed > 2 })
	holder.Kill()
	seen(t, w, "its death", func(v watch.View) bool {
		for _, p := range v.Processes {
			if p.Instance == h.Instance {
				return !p.Gone.IsZero() && !p.Closed
			}
		}
		return false
	})
}

// watchesUnder has one engine watch another one, and counts the commands that it takes.
func watchesUnder(t *testing.T, server *testservers.Server, set func(*redis.Options)) {
	t.Helper()
	o := redis.Options{Addr: server.Addr()}
	if set != nil {
		set(&o)
	}
	a := newEngine(t, redis.NewClient(&o), core.WithIdentity("a"))
	b := newEngine(t, redis.NewClient(&o), core.WithIdentity("b"))
	observer := newClient(t, redis.Options{Addr: server.Addr()})
	p := core.Policy{Key: "stock:1", Name: "stock", Wait: core.Forever, TTL: time.Minute}
	for _, e := range []*engine{a, b} {
		if err := e.Ping(bounded(t)); err != nil { // it is subscribed
			t.Fatal(err)
		}
		for range 20 {
			if err := e.Do(bounded(t), p, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := commands(t, observer)
	if n := before["subscribe"]; n != 2 {
		t.Errorf("%d subscriptions of 2 engines that nobody watches", n)
	}
	lease := a.take(t, "stock:1", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := b.Acquire(ctx, p)
		gaveUp <- err
	}()
	<-b.queued
	before, began := commands(t, observer), time.Now()
	w := watchOf(t, a)
	seen(t, w, "the wait", func(v watch.View) bool { return len(viewOf(v, "stock:1").Waiters) == 1 && v.Alone == "" })
	k, err := w.Key(bounded(t), "stock:1")
	if err != nil || k.Store == nil || k.Store.Waiting != 1 || len(k.Waiters) != 1 || k.Waiters[0].Identity != "b" || len(k.Holders) != 1 {
		t.Errorf("%v: %+v", err, k)
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the wait that was given up: %v", err)
	}
	seen(t, w, "the end of the wait", func(v watch.View) bool { return len(viewOf(v, "stock:1").Waiters) == 0 })
	after := commands(t, observer)
	// Each of the two may send 6 messages, and one more every 2.5 s. Giving up tells nobody.
	if n, most := after["publish"]-before["publish"], 2*(7+int(time.Since(began)/(2500*time.Millisecond))); n > most || n == 0 {
		t.Errorf("%d messages, at most %d are permitted", n, most)
	}
	if n := after["subscribe"] - before["subscribe"]; n != 1 {
		t.Errorf("%d more subscriptions for the watch", n)
	}
	if err := lease.Release(bounded(t)); err != nil {
		t.Error(err)
	}
}

func TestWatchCostsFewCommands(t *testing.T) {
	watchesUnder(t, testservers.Redis(t), nil)
}

func TestWatchWorksUnderMinimalACL(t *testing.T) {
	server := testservers.Redis(t)
	watchesUnder(t, server, user(t, server, minimalACL))
}
