package endurance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

const (
	// storeTimeout bounds each attempt of a session to reach the store.
	storeTimeout = 2 * time.Second

	// patience ends calls that are expected to succeed.
	patience = 30 * time.Second

	// grace is what a ghost may block for beyond its TTL, besides Capabilities.Wake.
	grace = 100 * time.Millisecond
)

// lane is a harness at work on a part of a figure's instances.
type lane struct {
	*record
	t      *testing.T
	h      *drivertest.Harness
	caps   driver.Capabilities
	space  string // of keys, random, so that lanes may share a store
	claims claims
}

func newLane(t *testing.T, h *drivertest.Harness, r *record) *lane {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails: crypto/rand ends the program instead
	return &lane{
		record: r, t: t, h: h, caps: h.Driver.Capabilities(),
		space: "endurance:" + hex.EncodeToString(salt[:]), claims: claims{all: make(map[string][]*claim)},
	}
}

// short is the TTL of a lease whose end is waited for.
func (l *lane) short() time.Duration { return max(400*time.Millisecond, l.caps.MinTTL) }

// long is the TTL of a lease that must not end by itself.
func (l *lane) long() time.Duration { return max(30*time.Second, 4*l.caps.MinTTL) }

// peer is the driver that no fault but an outage touches.
func (l *lane) peer() driver.Driver {
	if l.h.Peer == nil {
		return l.h.Driver
	}
	return l.h.Peer
}

// undone has an ability undone at the latest when the lane ends.
func (l *lane) undone(undo func()) func() {
	undo = sync.OnceFunc(undo)
	l.t.Cleanup(undo)
	return undo
}

// patient is a context for a call that is expected to succeed.
func (l *lane) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// yield lets some time pass before something is looked at again.
func yield() { <-time.After(time.Millisecond) }

// process is a session as one process of several would have it. Its methods are safe
// for concurrent use.
type process struct {
	driver.Session
	l    *lane
	sink *sink
}

// process opens a session, which ends with the lane.
func (l *lane) process(d driver.Driver) *process {
	l.t.Helper()
	p := &process{l: l, sink: &sink{queued: make(map[driver.ID]chan struct{})}}
	var err error
	if p.Session, err = d.Open(driver.Config{Sink: p.sink, StoreTimeout: storeTimeout}); err != nil {
		l.t.Fatalf("open a session: %v", err)
	}
	l.t.Cleanup(func() {
		ctx, cancel := l.patient()
		defer cancel()
		_ = p.Close(ctx) // an outage may have kept it from its work
	})
	return p
}

// lease is a grant to a process.
type lease struct {
	driver.Grant
	*claim
	p    *process
	back time.Time // when the acquire had returned
}

func (l *lane) request(key string, ttl time.Duration, wait bool) driver.Request {
	var o driver.Owner
	_, _ = rand.Read(o[:]) // never fails, as above
	return driver.Request{ID: driver.ID{Key: l.space + ":" + key, Owner: o}, TTL: ttl, Wait: wait}
}

// acquire calls Acquire, and claims what is granted.
func (p *process) acquire(ctx context.Context, r driver.Request) (*lease, error) {
	g, err := p.Acquire(ctx, r)
	back := time.Now()
	if err != nil {
		return nil, err
	}
	return &lease{Grant: g, claim: p.l.claims.begin(r.Key, g.Token, back, g.Deadline), p: p, back: back}, nil
}

// take waits for a key.
func (p *process) take(key string, ttl time.Duration) (*lease, error) {
	ctx, cancel := p.l.patient()
	defer cancel()
	return p.anew(ctx, p.l.request(key, ttl, true))
}

// anew asks again, by a fresh owner, when the place was lost or the store could not be
// reached, as whoever wants the key does.
func (p *process) anew(ctx context.Context, r driver.Request) (*lease, error) {
	for {
		g, err := p.acquire(ctx, r)
		if err == nil || ctx.Err() != nil {
			return g, err
		}
		_, _ = rand.Read(r.Owner[:]) // never fails, as above
		yield()
	}
}

// waiter is an Acquire in progress.
type waiter struct {
	cancel context.CancelFunc
	done   chan struct{} // closed at its end
	lease  *lease
	err    error
}

// enqueue starts an Acquire that waits, and returns when it has its place in the queue,
// or is over.
func (p *process) enqueue(key string, ttl time.Duration) *waiter {
	r := p.l.request(key, ttl, true)
	queued := p.sink.expect(r.ID)
	defer p.sink.forget(r.ID)
	ctx, cancel := p.l.patient()
	w := &waiter{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer cancel()
		w.lease, w.err = p.anew(ctx, r)
	}()
	select {
	case <-queued:
	case <-w.done:
	}
	return w
}

// wait returns how the Acquire ended.
func (w *waiter) wait() (*lease, error) {
	<-w.done
	return w.lease, w.err
}

// release ends the claim and calls Release once.
func (g *lease) release() error {
	g.p.l.claims.end(g.claim)
	ctx, cancel := g.p.l.patient()
	defer cancel()
	return g.p.Release(ctx, []driver.Ending{{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}})[0]
}

// end releases the lease, again until that is answered or the lease is over by itself.
func (g *lease) end() error {
	for {
		err := g.release()
		late := !time.Now().Before(g.Deadline)
		switch {
		case err == nil, late:
			return nil
		case errors.Is(err, driver.ErrNotHeld):
			return errors.New("a release before the deadline reported its lease as not held")
		}
	}
}

// renew renews the lease and its claim.
func (g *lease) renew(ttl time.Duration) error {
	ctx, cancel := g.p.l.patient()
	defer cancel()
	r := g.p.Renew(ctx, []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: ttl}})[0]
	if r.Err == nil {
		g.Deadline = driver.Later(g.Deadline, r.Deadline)
		g.p.l.claims.extend(g.claim, r.Deadline)
	}
	return r.Err
}

// sink tells who has got a place in the queue.
type sink struct {
	mu     sync.Mutex
	queued map[driver.ID]chan struct{}
}

// expect returns a channel that is closed when the owner is reported to wait.
func (s *sink) expect(id driver.ID) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{})
	s.queued[id] = c
	return c
}

func (s *sink) forget(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queued, id)
}

// Waiting implements driver.Sink.
func (s *sink) Waiting(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.queued[id]; c != nil {
		close(c)
		delete(s.queued, id)
	}
}

// Contended implements driver.Sink.
func (*sink) Contended(driver.ID, bool) {}

// Lost implements driver.Sink.
func (*sink) Lost(driver.ID, error) {}

// engine makes an engine, which ends with the lane. All of a lane exclude each other.
func (l *lane) engine(d driver.Driver) *core.Engine {
	l.t.Helper()
	e, err := core.New(d, core.WithNamespace(l.space), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		l.t.Fatalf("make an engine: %v", err)
	}
	l.t.Cleanup(func() { _ = e.Close() }) // says so if it could not tell the store everything
	return e
}

// each runs do for 0 to n-1, all at once, and waits for them.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// rounds splits n instances into rounds of at most size, which take place one after the
// other and end when the test has failed.
func (l *lane) rounds(n, size int, round func(round, size int)) {
	for i := 0; n > 0 && !l.t.Failed(); i++ {
		k := min(n, size)
		round(i, k)
		if !l.t.Failed() {
			l.tried(k)
		}
		n -= k
	}
}

// hold is a lease of an engine, and the claim to it.
type hold struct {
	*core.Lease
	claim *claim
	back  time.Time // when the acquire had returned
}

// hold takes a key, for which it waits.
func (l *lane) hold(e *core.Engine, key string, ttl time.Duration) (*hold, error) {
	ctx, cancel := l.patient()
	defer cancel()
	return l.holdWithin(ctx, e, core.Policy{Key: key, TTL: ttl, Wait: core.Forever})
}

func (l *lane) holdWithin(ctx context.Context, e *core.Engine, p core.Policy) (*hold, error) {
	lease, err := e.Acquire(ctx, p)
	back := time.Now()
	if err != nil {
		return nil, err
	}
	return &hold{Lease: lease, claim: l.claims.begin(p.Key, lease.Token(), back, lease.Deadline()), back: back}, nil
}

// release ends the claim and releases the lease.
func (l *lane) release(h *hold) error {
	l.claims.extend(h.claim, h.Deadline()) // as renewals have moved it
	l.claims.end(h.claim)
	ctx, cancel := l.patient()
	defer cancel()
	return h.Release(ctx)
}

// leave releases a lease that must be held.
func (l *lane) leave(h *hold, what string) {
	l.t.Helper()
	if err := l.release(h); err != nil && !errors.Is(err, core.ErrUnavailable) { // it goes on in the background then
		l.t.Errorf("release of %s: %v", what, err)
	}
}

// insist calls do again while the store is too slow to answer, which is no matter of the
// figures. do has a context that ends.
func insist(do func() error) error {
	for {
		if err := do(); !errors.Is(err, core.ErrUnavailable) {
			return err
		}
	}
}

// numbered is a key of which there are several.
func numbered(key string, numbers ...int) string {
	for _, n := range numbers {
		key += ":" + strconv.Itoa(n)
	}
	return key
}

// claims are the times in which somebody could believe that a key is his: from when
// his acquire returned to when he called release, or to his deadline if that is sooner.
// No two of a key overlap.
type claims struct {
	mu  sync.Mutex
	all map[string][]*claim
}

type claim struct {
	from, to time.Time
	token    int64
}

// begin adds a claim that ends at a deadline.
func (c *claims) begin(key string, token int64, from, deadline time.Time) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &claim{from: from, to: deadline, token: token}
	c.all[key] = append(c.all[key], m)
	return m
}

// extend moves the deadline of a claim.
func (c *claims) extend(m *claim, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline.After(m.to) {
		m.to = deadline
	}
}

// end ends a claim before its release is called.
func (c *claims) end(m *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Before(m.to) {
		m.to = now
	}
}

// judge fails the test for each claim that began while an earlier one lasted, and for
// each whose token is not larger than the one before.
func (c *claims) judge(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, all := range c.all {
		slices.SortFunc(all, func(a, b *claim) int { return a.from.Compare(b.from) })
		for i := 1; i < len(all); i++ {
			before, m := all[i-1], all[i]
			if m.from.Before(before.to) {
				t.Errorf("key %s was granted twice: the second time %v before the first claim ended", key, before.to.Sub(m.from))
			}
			if m.token <= before.token && m.token != 0 {
				t.Errorf("key %s: token %d was granted after token %d", key, m.token, before.token)
			}
		}
	}
}
