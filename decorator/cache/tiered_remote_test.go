package cache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// remote is a store whose subscription, pushes and answers a test has in hand.
type remote struct {
	*cache.Memory

	heard  chan func(up func(), changed func(string)) // for Listen to do
	broken chan error                                 // ends the subscription

	mu      sync.Mutex
	gets    int
	answer  chan struct{} // not nil: what Get has read is answered when it is closed
	fail    error         // of Invalidate, once it has been done
	listens int
	refuse  error // of Listen
}

// tell has the subscription do something, as soon as there is one.
func (r *remote) tell(do func(up func(), changed func(string))) {
	done := make(chan struct{})
	r.heard <- func(up func(), changed func(string)) {
		defer close(done)
		do(up, changed)
	}
	<-done
}

func (r *remote) confirm() { r.tell(func(up func(), _ func(string)) { up() }) }

func (r *remote) push(key string) { r.tell(func(_ func(), changed func(string)) { changed(key) }) }

func (r *remote) Get(ctx context.Context, key string) (cache.Entry, error) {
	e, err := r.Memory.Get(ctx, key)
	r.mu.Lock()
	r.gets++
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		<-answer
	}
	return e, err
}

func (r *remote) Invalidate(ctx context.Context, key string) error {
	r.mu.Lock()
	answer, fail := r.answer, r.fail
	r.mu.Unlock()
	if answer != nil {
		<-answer
	}
	return errors.Join(r.Memory.Invalidate(ctx, key), fail)
}

func (r *remote) Listen(ctx context.Context, up func(), changed func(string)) error {
	r.mu.Lock()
	r.listens++
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-r.broken:
			return err
		case do := <-r.heard:
			do(up, changed)
		}
	}
}

// hold lets answers wait until the function returned is called.
func (r *remote) hold() (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = make(chan struct{})
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		close(r.answer)
		r.answer = nil
	}
}

// asked returns how often Get has come to the remote store since it was last asked.
func (r *remote) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.gets
	r.gets = 0
	return n
}

func newRemote() *remote {
	return &remote{
		Memory: cache.NewMemory(cache.Limits{Entries: 1000}),
		heard:  make(chan func(func(), func(string))), broken: make(chan error),
	}
}

// newUnconfirmed returns a store that has not subscribed yet.
func newUnconfirmed(t testing.TB, l cache.Limits, o ...cache.TieredOption) (*cache.Tiered, *remote) {
	t.Helper()
	r := newRemote()
	s, err := cache.NewTiered(l, r, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, r
}

// newTiered returns a store that has subscribed.
func newTiered(t testing.TB, l cache.Limits, o ...cache.TieredOption) (*cache.Tiered, *remote) {
	t.Helper()
	s, r := newUnconfirmed(t, l, o...)
	r.confirm()
	return s, r
}

var few = cache.Limits{Entries: 10}

// bubble runs a test on a store that has subscribed.
func bubble(t *testing.T, test func(t *testing.T, s *cache.Tiered, r *remote)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, r := newTiered(t, few)
		test(t, s, r)
	})
}

// mustAsk fails the test if reading does not come to the remote store, or does.
func mustAsk(t testing.TB, s cache.Store, r *remote, key, want string, times int) {
	t.Helper()
	r.asked()
	mustRead(t, s, key, want)
	if n := r.asked(); n != times {
		t.Errorf("%s: the remote store was asked %d times; want %d", key, n, times)
	}
}

// pushing is another process, whose changes are pushed at once.
type pushing struct{ *remote }

func (p pushing) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	defer p.push(key)
	return p.Memory.Put(ctx, key, token, value, ttl)
}

func (p pushing) Invalidate(ctx context.Context, key string) error {
	defer p.push(key)
	return p.Memory.Invalidate(ctx, key)
}
