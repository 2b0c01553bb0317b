package cache_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/cachetest"
)

func TestTieredConforms(t *testing.T) {
	cachetest.RunInBubble(t, func(t *testing.T) *cachetest.Harness {
		s, r := newTiered(t, few)
		return &cachetest.Harness{Store: s, Peer: pushing{r}, Settle: func() {}}
	})
}

func TestCopyIsReadWithoutTheRemoteStore(t *testing.T) {
	bubble(t, func(t *testing.T, s *cache.Tiered, r *remote) {
		mustPut(t, r.Memory, "a", 1, "v", hour)
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 0)
		mustAsk(t, s, r, "none", "", 1)
		mustAsk(t, s, r, "none", "", 1)
		if err := s.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestPushDropsTheCopy(t *testing.T) {
	bubble(t, func(t *testing.T, s *cache.Tiered, r *remote) {
		mustPut(t, r.Memory, "a", 1, "v", hour)
		mustPut(t, r.Memory, "b", 1, "v", hour)
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "b", "v", 1)
		mustPut(t, r.Memory, "a", 2, "w", hour)
		mustAsk(t, s, r, "a", "v", 0) // while the push travels
		r.push("a")
		mustAsk(t, s, r, "a", "w", 1)
		mustAsk(t, s, r, "b", "v", 0)
	})
}

// overtaken reads a key, has something happen while the answer travels, and says whether
// what was read is a copy.
func overtaken(t *testing.T, s *cache.Tiered, r *remote, key string, meanwhile func()) (kept bool) {
	t.Helper()
	release := r.hold()
	read := make(chan struct{})
	go func() {
		defer close(read)
		mustRead(t, s, key, "old")
	}()
	synctest.Wait()
	meanwhile()
	release()
	<-read
	synctest.Wait()
	r.asked()
	_, _ = s.Get(t.Context(), key)
	return r.asked() == 0
}

func TestAnswerThatAPushOvertookIsNoCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(t *testing.T, s *cache.Tiered, r *remote)
		kept      bool
	}{
		"nothing happens":          {func(*testing.T, *cache.Tiered, *remote) {}, true},
		"a push comes":             {func(_ *testing.T, _ *cache.Tiered, r *remote) { r.push("a") }, false},
		"it subscribes anew":       {func(_ *testing.T, _ *cache.Tiered, r *remote) { r.confirm() }, false},
		"the subscription breaks":  {func(_ *testing.T, _ *cache.Tiered, r *remote) { r.broken <- nil; synctest.Wait() }, false},
		"this process claims":      {func(t *testing.T, s *cache.Tiered, _ *remote) { _, _ = s.Claim(t.Context(), "a", 2, hour) }, false},
		"this process puts":        {func(t *testing.T, s *cache.Tiered, _ *remote) { mustPut(t, s, "a", 2, "new", hour) }, false},
		"it breaks and comes back": {func(_ *testing.T, _ *cache.Tiered, r *remote) { r.broken <- nil; time.Sleep(time.Second); r.confirm() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *cache.Tiered, r *remote) {
				mustPut(t, r.Memory, "a", 1, "old", hour)
				if kept := overtaken(t, s, r, "a", func() { tc.meanwhile(t, s, r) }); kept != tc.kept {
					t.Errorf("the answer became a copy: %t; want %t", kept, tc.kept)
				}
			})
		})
	}
}

func TestNoCopyOutlivesThisProcessesInvalidation(t *testing.T) {
	bubble(t, func(t *testing.T, s *cache.Tiered, r *remote) {
		mustPut(t, r.Memory, "a", 1, "old", hour)
		mustRead(t, s, "a", "old")
		// Invalidate is on its way to the remote store while another goroutine reads there.
		release := r.hold()
		invalidated := make(chan error)
		go func() { invalidated <- s.Invalidate(t.Context(), "a") }()
		synctest.Wait()
		mustAsk(t, s, r, "a", "old", 0)
		release()
		if err := <-invalidated; err != nil {
			t.Fatal(err)
		}
		mustAsk(t, s, r, "a", "", 1)

		// The same if nobody knows what has become of it.
		mustPut(t, r.Memory, "b", 1, "old", hour)
		mustRead(t, s, "b", "old")
		r.fail = errors.New("no reply")
		if err := s.Invalidate(t.Context(), "b"); !errors.Is(err, r.fail) {
			t.Errorf("invalidate: %v", err)
		}
		mustAsk(t, s, r, "b", "", 1)
	})
}

func TestNoCopyIsMadeWithoutASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newUnconfirmed(t, few)
		mustPut(t, r.Memory, "a", 1, "v", hour)
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 1)
		if s.Err() == nil {
			t.Error("it says that copies are in use")
		}
		r.confirm()
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 0)
		r.confirm() // it had broken, without a sign
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 0)

		why := errors.New("reset by peer")
		r.mu.Lock()
		r.refuse = why
		r.mu.Unlock()
		r.broken <- why
		time.Sleep(time.Minute)
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 1)
		if err := s.Err(); !errors.Is(err, why) {
			t.Errorf("it says %v; want why", err)
		}
		r.mu.Lock()
		if r.listens < 15 || r.listens > 60 {
			t.Errorf("it has subscribed %d times in a minute; want about every 3 s", r.listens)
		}
		r.refuse = nil
		r.mu.Unlock()
		r.confirm()
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 0)
	})
}

func TestCopyEndsWithItsValueOrItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newTiered(t, few, cache.WithMaxAge(10*time.Second), nil)
		mustPut(t, r.Memory, "brief", 1, "v", 4*time.Second)
		mustPut(t, r.Memory, "long", 1, "v", hour)
		time.Sleep(time.Second)
		mustAsk(t, s, r, "brief", "v", 1)
		mustAsk(t, s, r, "long", "v", 1)
		time.Sleep(3*time.Second - time.Nanosecond)
		mustAsk(t, s, r, "brief", "v", 0)
		time.Sleep(time.Nanosecond)
		mustAsk(t, s, r, "brief", "", 1)
		if e, _ := s.Get(t.Context(), "long"); e.Left != hour-4*time.Second {
			t.Errorf("%v left; want that of the value, not of its copy", e.Left)
		}
		time.Sleep(7*time.Second - time.Nanosecond)
		mustAsk(t, s, r, "long", "v", 0)
		time.Sleep(time.Nanosecond)
		mustAsk(t, s, r, "long", "v", 1)
	})
}

func TestCopiesKeepTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newTiered(t, cache.Limits{Entries: 2})
		for _, k := range []string{"a", "b", "c"} {
			mustPut(t, r.Memory, k, 1, "v", hour)
			mustAsk(t, s, r, k, "v", 1)
		}
		mustAsk(t, s, r, "b", "v", 0)
		mustAsk(t, s, r, "c", "v", 0)
		mustAsk(t, s, r, "a", "v", 1)
	})
}

func TestClosedStoreAsksTheRemoteOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *cache.Tiered, r *remote) {
		mustPut(t, r.Memory, "a", 1, "v", hour)
		mustRead(t, s, "a", "v")
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		mustAsk(t, s, r, "a", "v", 1)
		mustAsk(t, s, r, "a", "v", 1)
		if s.Err() == nil {
			t.Error("it says that copies are in use")
		}
		mustPut(t, s, "a", 2, "w", hour)
		mustRead(t, s, "a", "w")
	})
}

func TestTieredThatCannotWorkIsAnError(t *testing.T) {
	for says, make := range map[string]func() (*cache.Tiered, error){
		"remote store is nil": func() (*cache.Tiered, error) { return cache.NewTiered(few, nil) },
		"store is nil; pass":  func() (*cache.Tiered, error) { return cache.NewTiered(few, (*remote)(nil)) },
		"no limit":            func() (*cache.Tiered, error) { return cache.NewTiered(cache.Limits{}, newRemote()) },
		"at least 1ms":        func() (*cache.Tiered, error) { return cache.NewTiered(few, newRemote(), cache.WithMaxAge(0)) },
	} {
		if s, err := make(); s != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v; want an error with %q", err, says)
		}
	}
}
