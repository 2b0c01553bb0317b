package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// watched is an engine on a store that fails as the test says, and what it logs.
type watched struct {
	*core.Engine
	t     *testing.T
	store *memlock.Driver
	log   bytes.Buffer
}

func newWatched(t *testing.T, o ...core.Option) *watched {
	w := &watched{t: t, store: memlock.New()}
	w.Engine = open(t, w.store, append(o, core.WithLogger(slog.New(slog.NewTextHandler(&w.log, nil))))...)
	return w
}

// ask takes a key and gives it back, if it can be had.
func (w *watched) ask(times int) {
	for range times {
		if l, err := w.Acquire(w.t.Context(), core.Policy{Key: "k"}); err == nil {
			_ = l.Release(w.t.Context())
		}
	}
}

// lines are those of the log.
func (w *watched) lines() []string {
	if text := strings.TrimSpace(w.log.String()); text != "" {
		return strings.Split(text, "\n")
	}
	return nil
}

// says fails the test unless the log has these lines, in this order, and no others.
func (w *watched) says(want ...string) {
	w.t.Helper()
	w.saysOf(w.lines(), want)
}

func (w *watched) saysOf(lines, want []string) {
	w.t.Helper()
	if len(lines) != len(want) {
		w.t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), w.log.String())
	}
	for i, line := range lines {
		for _, part := range append(strings.Split(want[i], " … "), "lock.driver=") {
			if !strings.Contains(line, part) {
				w.t.Errorf("line %d is %s\nwant %q in it", i+1, line, part)
			}
		}
	}
}

const (
	gone    = "level=ERROR … the store does not answer … refused"
	refused = "level=ERROR … the store refuses what a lock needs … NOPERM"
	back    = "level=INFO … the store answers again … after="
)

func TestOutageIsLoggedOnceWithItsCauseAndOnceWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		held := mustAcquire(t, w.Engine, core.Policy{Key: "held", TTL: time.Second})
		w.ask(3)
		w.says()

		w.store.Fail(errors.New("connection refused"))
		w.ask(3)
		time.Sleep(5 * time.Second) // renewals fail too, and a lease is lost
		w.ask(3)
		_ = held.Release(t.Context()) // it was lost
		w.store.Fail(nil)
		w.ask(3)
		w.says(gone, "a lock was lost", back+"5")
	})
}

func TestOutagesLineHoldsNoCredentials(t *testing.T) {
	for cause, want := range map[string]string{
		"dial redis://app:hunter2@10.0.0.1:6379: refused": "dial redis:(credentials)10.0.0.1:6379: refused",
		"dial redis://:hunter2@10.0.0.1":                  "dial redis:(credentials)10.0.0.1",
		"host=db password=hunter2 user=app: no route":     "host=db (credentials) user=app: no route",
		"https://example.org/a@b":                         "https://example.org/a@b",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatched(t)
			w.store.Fail(errors.New(cause))
			w.ask(1)
			w.says(want)
			if strings.Contains(w.log.String(), "hunter2") {
				t.Errorf("the log tells a password: %s", w.log.String())
			}
		})
	}
}

func TestRefusalIsLoggedWithItsCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.store.Fail(errors.New("connection refused"))
		w.ask(2)
		w.store.Fail(&driver.PermanentError{Err: errors.New("NOPERM no permissions")})
		w.ask(2)
		w.store.Fail(nil)
		w.ask(2)
		w.says(gone, refused, back)
	})
}

func TestStoreThatComesAndGoesIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		for range 90 {
			w.store.Fail(errors.New("connection refused"))
			w.ask(1)
			w.store.Fail(nil)
			w.ask(1)
			time.Sleep(time.Second)
		}
		w.says(gone, back, gone, back)
	})
}

func TestSlowAnswerIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.store.Fail(context.DeadlineExceeded)
		w.ask(1)
		w.store.Fail(nil)
		w.ask(1)
		w.says()

		w.store.Fail(context.DeadlineExceeded)
		w.ask(1)
		time.Sleep(2 * time.Minute) // longer than the store's time
		w.ask(1)
		w.says("the store does not answer … deadline exceeded")
	})
}

func TestCallerWhoGivesUpIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.store.Stall()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_, err := w.Acquire(ctx, core.Policy{Key: "k"})
			if err == nil {
				t.Error("a store that says nothing grants a lock")
			}
			cancel()
		}
		w.store.Fail(nil)
		w.ask(1)
		w.says()
	})
}

func TestStoreThatSaysNothingToWhoWaitsIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatched(t)
		w.store.Stall()
		if _, err := w.Acquire(t.Context(), core.Policy{Key: "k", Wait: 2 * time.Minute}); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		w.store.Heal()
		w.ask(1)
		w.says("the store does not answer", back)
	})
}

// What an operator needs of a lock that was lost stands in one line: whose, since when, and why.
func TestLostLockIsLoggedOnceWithWhatItWas(t *testing.T) {
	for name, c := range map[string]struct {
		policy core.Policy
		lose   func(w *watched)
		keys   bool
		says   []string
	}{
		"the store is away": {core.Policy{Key: "stock:1", Name: "stock", TTL: time.Second}, func(w *watched) {
			w.store.Fail(errors.New("connection refused"))
			time.Sleep(5 * time.Second)
		}, false, []string{`lost while held" lock.name=stock … lock.token=TOKEN held= … before the store had confirmed a renewal … error= … refused`, gone}},
		"by force, with the key": {core.Policy{Key: "stock:1", Name: "stock", TTL: time.Minute}, func(w *watched) {
			time.Sleep(time.Second)
			if _, err := w.ForceRelease(w.t.Context(), "stock:1"); err != nil {
				w.t.Error(err)
			}
		}, true, []string{`lost while held" … lock.token=TOKEN held=1s … by force … lock.key=stock:1`, "released by force … lock.key=stock:1"}},
		"too long": {core.Policy{Key: "stock:1", Name: "stock", TTL: time.Minute, MaxHold: 3 * time.Second}, func(*watched) {
			time.Sleep(5 * time.Second)
		}, false, []string{"longer than MaxHold … lock.token=TOKEN held=3s max_hold=3s"}},
		"no renewal": {core.Policy{Key: "stock:1", Name: "stock", TTL: time.Second, NoRenew: true}, func(*watched) {
			time.Sleep(5 * time.Second)
		}, false, []string{"lost while held … it is not renewed"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := []core.Option{core.WithForceRelease()}
				if c.keys {
					o = append(o, core.WithLoggedKeys())
				}
				w := newWatched(t, o...)
				l := mustAcquire(t, w.Engine, c.policy)
				c.lose(w)
				synctest.Wait()
				_ = l.Release(t.Context())
				for i, line := range c.says {
					c.says[i] = strings.ReplaceAll(line, "TOKEN", fmt.Sprint(l.Token()))
				}
				lines := w.lines() // of goroutines of their own, so in any order
				slices.SortFunc(lines, func(a, b string) int {
					return strings.Compare(a[strings.Index(a, "msg="):], b[strings.Index(b, "msg="):])
				})
				w.saysOf(lines, c.says)
				if !c.keys && strings.Contains(w.log.String(), "stock:1") {
					t.Errorf("the log tells the key: %s", w.log.String())
				}
				w.store.Fail(nil)
			})
		})
	}
}

// A call that holds on for ten TTLs while others wait is told once, if they wait for it to end.
func TestLongHoldThatOthersWaitForIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		waits, standby bool
		says           []string
	}{
		"others wait":   {true, false, []string{"for very long while others wait … held=2m"}},
		"nobody waits":  {false, false, nil},
		"they stand by": {true, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatched(t)
				p := core.Policy{Key: "k", TTL: 12 * time.Second, Wait: core.Forever, Standby: c.standby}
				l := mustAcquire(t, w.Engine, p)
				ctx, cancel := context.WithCancel(t.Context())
				if c.waits {
					go func() { _ = w.Do(ctx, p, func(context.Context) error { return nil }) }()
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait() // for the log's goroutine
				w.says(c.says...)
				cancel()
				synctest.Wait()
				mustBe(t, l.Release(t.Context()), nil)
			})
		})
	}
}
