package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue"
)

// busy is a queue of a near server with as many calls under way as there can be.
type busy struct {
	*redisQueue
	client *redis.Client
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	s := testservers.Redis(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = c.Close() })
	store, err := New(c, "shop:queue:")
	if err != nil {
		t.Fatal(err)
	}
	q, err := store.Open("refund", queue.Rules{Attempts: 100, MaxLength: 100, KeepFor: time.Hour, KeepCount: 10})
	if err != nil {
		t.Fatal(err)
	}
	b := &busy{q.(*redisQueue), c}
	b.append(t.Context(), t, "first") // the server has its script from now on, and the next one's
	if _, err := b.Begin(t.Context(), queue.Holder{Key: "none", Token: 1, Worker: "w", For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	b.set(time.Nanosecond, width)
	return b
}

func (b *busy) append(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	if _, err := b.Append(ctx, key, queue.New{ID: "1", Payload: []byte("1")}); err != nil {
		t.Error(err)
	}
}

// set sets in what time the server answers, and how many calls are under way.
func (b *busy) set(fastest time.Duration, underWay int) {
	b.trips[0].mu.Lock()
	defer b.trips[0].mu.Unlock()
	b.trips[0].fastest, b.trips[0].underWay = fastest, underWay
}

// wait waits until n calls wait.
func (b *busy) wait(n int) { b.until(func(t *trips) bool { return len(t.waiting) == n }) }

// idle waits until no call is under way. A trip whose calls have returned may be, for a moment.
func (b *busy) idle() { b.until(func(t *trips) bool { return t.underWay == 0 }) }

func (b *busy) until(is func(*trips) bool) {
	for {
		b.trips[0].mu.Lock()
		ok := is(&b.trips[0])
		b.trips[0].mu.Unlock()
		if ok {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// back lets the calls under way be back.
func (b *busy) back() {
	b.trips[0].mu.Lock()
	defer b.trips[0].mu.Unlock()
	b.trips[0].ended()
	b.trips[0].ended()
}

// scripts is how many the server has run.
func (b *busy) scripts(t *testing.T) (n int) {
	t.Helper()
	stats, err := b.client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls int
		_, _ = fmt.Sscanf(stats["Commandstats"][name], "calls=%d", &calls) // it is not there before the first
		n += calls
	}
	return n
}

func TestCallsThatWaitShareScripts(t *testing.T) {
	b := newBusy(t)
	before := b.scripts(t)
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() { b.append(t.Context(), t, fmt.Sprint("refund:", n)) })
		all.Go(func() {
			if _, err := b.Begin(t.Context(), queue.Holder{Key: "first", Token: int64(n + 1), Worker: "w", For: time.Minute}); err != nil && !errors.Is(err, queue.ErrSuperseded) {
				t.Error(err)
			}
		})
	}
	b.wait(20)
	b.back()
	all.Wait()
	if n := b.scripts(t) - before; n > 4 { // two trips of two scripts each
		t.Errorf("20 calls were %d scripts", n)
	}
	c, err := b.Claim(t.Context(), queue.ClaimRequest{Worker: "w", Max: 20, For: time.Minute})
	if err != nil || len(c.Keys) != 10 {
		t.Errorf("%d keys are due, %v; want those that were appended to", len(c.Keys), err)
	}
	s, err := b.Stats(t.Context())
	if err != nil || s.Length != 11 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestErrorOfACallIsNotThatOfOthersInItsTrip(t *testing.T) {
	b := newBusy(t)
	for what, spoil := range map[string]func(key string) error{
		"lost":      func(key string) error { return b.client.Del(t.Context(), key).Err() },
		"no string": func(key string) error { return b.client.HSet(t.Context(), key, "f", "v").Err() },
	} {
		damaged := "damaged:" + what
		b.set(time.Nanosecond, 0)
		b.append(t.Context(), t, damaged)
		if err := b.client.Del(t.Context(), b.bases[0]+"k:"+queue.Digest(damaged)).Err(); err != nil {
			t.Fatal(err)
		}
		if err := spoil(b.bases[0] + "k:" + queue.Digest(damaged)); err != nil {
			t.Fatal(err)
		}
		b.set(time.Nanosecond, width)
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() { b.append(t.Context(), t, fmt.Sprint(what, n)) })
			b.wait(2*n + 1)
			all.Go(func() {
				if _, err := b.Append(t.Context(), damaged, queue.New{ID: fmt.Sprint("more", n)}); err == nil {
					t.Errorf("%s: an append is accepted", what)
				}
			})
			b.wait(2*n + 2)
		}
		b.back()
		all.Wait()
		b.idle()
		c, err := b.Claim(t.Context(), queue.ClaimRequest{Worker: "w", Max: 20, For: time.Minute})
		if err != nil || len(c.Keys) < 3 {
			t.Errorf("%s: %q are due, %v", what, c.Keys, err)
		}
	}
}

func TestCallerThatLeavesIsNotWaitedForNorItsCallSent(t *testing.T) {
	b := newBusy(t)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := b.Append(ctx, "left", queue.New{ID: "1"})
		left <- err
	}()
	b.wait(1)
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want context.Canceled", err)
	}
	stayed := make(chan struct{})
	go func() {
		defer close(stayed)
		b.append(t.Context(), t, "stayed")
	}()
	b.wait(2)
	b.back()
	<-stayed
	if s, err := b.Stats(t.Context()); err != nil || s.Length != 2 {
		t.Errorf("%+v, %v; want the first item and that of the caller who has stayed", s, err)
	}
}

func TestCallsThatDoNotShareGoAtOnce(t *testing.T) {
	b := newBusy(t)
	if _, err := b.Append(t.Context(), "large", queue.New{ID: "1", Payload: make([]byte, mostBytes)}); err != nil {
		t.Error(err)
	}
	b.set(near, width)
	b.append(t.Context(), t, "far")
	b.back()
	if n := b.trips[0].underWay; n != 0 {
		t.Errorf("%d trips are under way", n)
	}
}
