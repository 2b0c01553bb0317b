package etcdlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// process is a session as one process of several would have it.
type process struct {
	driver.Session
	t testing.TB

	mu                       sync.Mutex
	waiting, contended, lost map[driver.ID]chan struct{}
}

// What is to happen has this long for it. The limit ends a test that would hang, and is no
// promise. All that could happen instead takes longer: a request that is not answered, and a
// lease that nobody ends.
const (
	patience     = 2 * time.Minute
	storeTimeout = 3 * time.Minute
	long         = 10 * time.Minute
)

func open(t testing.TB, d driver.Driver) *process {
	t.Helper()
	p := &process{t: t}
	for _, of := range []*map[driver.ID]chan struct{}{&p.waiting, &p.contended, &p.lost} {
		*of = make(map[driver.ID]chan struct{})
	}
	s, err := d.Open(driver.Config{Sink: p, StoreTimeout: storeTimeout})
	if err != nil {
		t.Fatalf("open a session: %v", err)
	}
	p.Session = s
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = s.Close(ctx) // a server that the test has stopped may have kept it from its work
	})
	return p
}

// Waiting implements driver.Sink.
func (p *process) Waiting(id driver.ID) { tell(p.event(p.waiting, id)) }

// Contended implements driver.Sink.
func (p *process) Contended(id driver.ID, waiting bool) {
	if waiting {
		tell(p.event(p.contended, id))
	}
}

// Lost implements driver.Sink.
func (p *process) Lost(id driver.ID, _ error) { tell(p.event(p.lost, id)) }

func tell(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (p *process) event(of map[driver.ID]chan struct{}, id driver.ID) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of[id] == nil {
		of[id] = make(chan struct{}, 1)
	}
	return of[id]
}

func request(key string, ttl time.Duration) driver.Request {
	r := driver.Request{ID: driver.ID{Key: key}, TTL: ttl}
	_, _ = rand.Read(r.Owner[:]) // never fails: crypto/rand ends the program instead
	return r
}

// within returns a context that lasts for as long as there is patience.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// take takes a key that is free.
func (p *process) take(key string, ttl time.Duration) driver.Grant {
	p.t.Helper()
	g, err := p.Acquire(within(p.t), request(key, ttl))
	if err != nil {
		p.t.Fatalf("acquire of a free key: %v", err)
	}
	return g
}

// waiter is an Acquire that waits.
type waiter struct {
	id   driver.ID
	done chan result
}

type result struct {
	driver.Grant
	err error
}

// queue returns when the request has its place.
func (p *process) queue(ctx context.Context, key string, ttl time.Duration) *waiter {
	p.t.Helper()
	r := request(key, ttl)
	r.Wait = true
	w := &waiter{id: r.ID, done: make(chan result, 1)}
	go func() {
		g, err := p.Acquire(ctx, r)
		w.done <- result{g, err}
	}()
	receive(p.t, p.event(p.waiting, r.ID), "Sink.Waiting")
	return w
}

func (w *waiter) granted(t testing.TB) driver.Grant {
	t.Helper()
	r := receive(t, w.done, "the waiter's grant")
	if r.err != nil {
		t.Fatalf("the waiter's grant: %v", r.err)
	}
	return r.Grant
}

func receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
}

// drop releases a lease that is held.
func (p *process) drop(g driver.Grant) {
	p.t.Helper()
	if err := p.end(g); err != nil {
		p.t.Fatalf("release of a lease that is held: %v", err)
	}
}

func (p *process) end(g driver.Grant) error {
	return p.Release(within(p.t), []driver.Ending{ending(g)})[0]
}

func (p *process) renew(g driver.Grant, ttl time.Duration) driver.Renewed {
	return p.Renew(within(p.t), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: ttl}})[0]
}

func isHeld(err error) bool {
	held := new(driver.HeldError)
	return errors.As(err, &held)
}

// placeOf returns the name of a lease's place, after its key's.
func placeOf(g driver.Grant) string {
	_, place, _ := strings.Cut(g.Ref, " is at ")
	return place
}
