package memlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a session and what it was told.
type process struct {
	t *testing.T
	driver.Session
	*sink
}

// processes opens n sessions on d.
func processes(t *testing.T, d *memlock.Driver, n int) []*process {
	t.Helper()
	ps := make([]*process, n)
	for i := range ps {
		sk := newSink()
		s, err := d.Open(driver.Config{Sink: sk, StoreTimeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		ps[i] = &process{t: t, Session: s, sink: sk}
	}
	return ps
}

func owner() (o driver.Owner) {
	_, _ = rand.Read(o[:])
	return o
}

func request(key string, ttl time.Duration) driver.Request {
	return driver.Request{ID: driver.ID{Key: key, Owner: owner()}, TTL: ttl}
}

// take acquires a key that must be free.
func (p *process) take(key string, ttl time.Duration) driver.Grant {
	p.t.Helper()
	g, err := p.Acquire(context.Background(), request(key, ttl))
	if err != nil {
		p.t.Fatalf("acquire of a free key: %v", err)
	}
	return g
}

// refused asks for a key that must be taken.
func (p *process) refused(key string) *driver.HeldError {
	p.t.Helper()
	_, err := p.Acquire(context.Background(), request(key, time.Minute))
	var held *driver.HeldError
	if !errors.As(err, &held) {
		p.t.Fatalf("acquire of a taken key: %v, want a HeldError", err)
	}
	return held
}

// waiting is an Acquire in progress.
type waiting struct {
	t    *testing.T
	id   driver.ID
	stop context.CancelFunc
	done chan struct{}
	g    driver.Grant
	err  error
}

// ask calls Acquire in the background.
func (p *process) ask(r driver.Request) *waiting {
	r.Wait = true
	ctx, cancel := context.WithCancel(context.Background())
	w := &waiting{t: p.t, id: r.ID, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer cancel()
		w.g, w.err = p.Acquire(ctx, r)
	}()
	return w
}

// enqueue asks for a key that is taken and returns once it has its place.
func (p *process) enqueue(r driver.Request) *waiting {
	p.t.Helper()
	queued := p.queued(r.ID)
	w := p.ask(r)
	select {
	case <-queued:
	case <-w.done:
		p.t.Fatalf("acquire of a taken key returned: %v", w.err)
	}
	return w
}

func (p *process) queue(key string) *waiting {
	p.t.Helper()
	return p.enqueue(request(key, time.Minute))
}

// granted waits for the lease.
func (w *waiting) granted() driver.Grant {
	w.t.Helper()
	<-w.done
	if w.err != nil {
		w.t.Fatalf("acquire that waits: %v", w.err)
	}
	return w.g
}

// failed waits for an error.
func (w *waiting) failed(want error) {
	w.t.Helper()
	<-w.done
	if !errors.Is(w.err, want) {
		w.t.Fatalf("acquire that waits: %v, want %v", w.err, want)
	}
}

// waits fails the test if the Acquire has returned. Use it where nothing runs:
// after synctest.Wait.
func (w *waiting) waits() {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("acquire of a taken key returned: %v", w.err)
	default:
	}
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
}

// end releases a lease and returns the result.
func (p *process) end(e driver.Ending) error {
	return p.Release(context.Background(), []driver.Ending{e})[0]
}

// drop releases a lease that must be held.
func (p *process) drop(g driver.Grant) {
	p.t.Helper()
	if err := p.end(ending(g)); err != nil {
		p.t.Fatalf("release of a lease that is held: %v", err)
	}
}

func (p *process) renew(g driver.Grant, ttl time.Duration) driver.Renewed {
	return p.Renew(context.Background(), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: ttl}})[0]
}

func (p *process) state(key string) driver.State {
	p.t.Helper()
	st, err := p.Inspect(context.Background(), key)
	if err != nil {
		p.t.Fatalf("inspect: %v", err)
	}
	return st
}

// sink records what a session is told.
type sink struct {
	mu        sync.Mutex
	places    map[driver.ID]chan struct{}
	contended map[driver.ID][]bool
	lost      map[driver.ID]error
	onLost    func(driver.ID)
}

func newSink() *sink {
	return &sink{
		places:    make(map[driver.ID]chan struct{}),
		contended: make(map[driver.ID][]bool),
		lost:      make(map[driver.ID]error),
	}
}

// queued returns a channel that receives when id has its place in the queue.
func (s *sink) queued(id driver.ID) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.places[id] = c
	return c
}

func (s *sink) Waiting(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.places[id] <- struct{}{}:
	default:
	}
}

func (s *sink) Contended(id driver.ID, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contended[id] = append(s.contended[id], waiting)
}

func (s *sink) Lost(id driver.ID, cause error) {
	s.mu.Lock()
	s.lost[id] = cause
	f := s.onLost
	s.mu.Unlock()
	if f != nil {
		f(id)
	}
}

func (s *sink) heard(id driver.ID) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]bool(nil), s.contended[id]...)
}

func (s *sink) cause(id driver.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost[id]
}
