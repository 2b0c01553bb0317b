package drivertest

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// process is a session as one process of several would have it.
type process struct {
	f    *fixture
	s    driver.Session
	sink *sink
}

// lease is a grant, with what the process knows about its times.
type lease struct {
	driver.Grant
	p    *process
	ttl  time.Duration
	sent time.Time // before Acquire was called
	back time.Time // after it had returned
}

func (f *fixture) request(key string, ttl time.Duration) driver.Request {
	return driver.Request{ID: driver.ID{Key: key, Owner: owner()}, TTL: ttl}
}

func (f *fixture) waiting(key string, ttl time.Duration) driver.Request {
	r := f.request(key, ttl)
	r.Wait = true
	return r
}

// acquire calls Acquire and sees to it that the call ends by its context.
func (p *process) acquire(ctx context.Context, r driver.Request) (*lease, error) {
	p.f.t.Helper()
	w := p.start(ctx, r)
	limit := patience + grace + Slack
	if end, ok := ctx.Deadline(); ok {
		limit = max(0, time.Until(end)) + grace + Slack
	}
	res := await(p.f, limit, "acquire", w.done)
	return res.lease, res.err
}

// ping makes the session talk to the store.
func (p *process) ping() error {
	p.f.t.Helper()
	ctx := p.f.prompt()
	return within(p.f, promptness+grace+Slack, "ping", func() error { return p.s.Ping(ctx) })
}

// try asks for a key without waiting.
func (p *process) try(key string, ttl time.Duration) (*lease, error) {
	p.f.t.Helper()
	return p.acquire(p.f.prompt(), p.f.request(key, ttl))
}

// take takes a key that is free.
func (p *process) take(key string, ttl time.Duration) *lease {
	p.f.t.Helper()
	l, err := p.try(key, ttl)
	if err != nil {
		p.f.t.Fatalf("acquire of a free key: %v; Inspect says %+v", err, p.f.state(key))
	}
	return l
}

// brief takes a key for so short a TTL that its end can be waited for. On a slow machine the store may not answer in such a time, or the lease be
// over when it does: then it tries a longer one.
func (p *process) brief(r driver.Request) *lease {
	p.f.t.Helper()
	for ; ; r = p.f.longer(r) {
		l, err := p.acquire(p.f.patient(), r)
		if err == nil {
			return l
		}
		if isHeld(err) || p.f.longest(r.TTL) {
			p.f.t.Fatalf("acquire of a free key for %v: %v", r.TTL, err)
		}
	}
}

// longer is another request in the place of one whose TTL was too short for the machine.
// What was refused may stay at the store for its TTL, so it waits.
func (f *fixture) longer(r driver.Request) driver.Request {
	r.TTL, r.Owner, r.Wait = 4*r.TTL, owner(), true
	return r
}

// longest reports whether a TTL is one that is too short for no machine.
func (f *fixture) longest(ttl time.Duration) bool { return ttl >= 64*f.short() }

// takeBriefly is brief for the check's key.
func (p *process) takeBriefly() *lease { return p.brief(p.f.request(p.f.key, p.f.short())) }

// waiter is an Acquire in progress.
type waiter struct {
	p      *process
	id     driver.ID
	ttl    time.Duration
	cancel context.CancelFunc
	done   chan result // receives once
}

type result struct {
	lease *lease
	err   error
}

// start calls Acquire in the background.
func (p *process) start(ctx context.Context, r driver.Request) *waiter {
	ctx, cancel := context.WithCancel(ctx)
	p.f.t.Cleanup(cancel)
	w := &waiter{p: p, id: r.ID, ttl: r.TTL, cancel: cancel, done: make(chan result, 1)}
	go func() {
		sent := time.Now()
		g, err := p.s.Acquire(ctx, r)
		back := time.Now()
		if err != nil {
			w.done <- result{err: err}
			return
		}
		w.done <- result{lease: &lease{Grant: g, p: p, ttl: r.TTL, sent: sent, back: back}}
	}()
	return w
}

var errGranted = errors.New("it was granted to another owner")

// enqueue starts an Acquire that waits, and returns when it has its place in
// the queue. It waits with a longer TTL if the machine was too slow for its own.
func (p *process) enqueue(r driver.Request) *waiter {
	p.f.t.Helper()
	r.Wait = true
	queued := p.sink.waiting(r.ID)
	w := p.start(context.Background(), r)
	ended := make(chan error, 1) // nil if it waits
	go func() {
		select {
		case <-queued:
			ended <- nil
		case res := <-w.done:
			ended <- cmp.Or(res.err, errGranted)
		}
	}()
	switch err := await(p.f, p.f.timeout+Slack, "a call of Sink.Waiting for an acquire that waits", ended); {
	case err == nil:
		return w
	case err == errGranted || isHeld(err) || p.f.longest(r.TTL):
		p.f.t.Fatalf("waiting for a key that is held: %v", err)
	}
	return p.enqueue(p.f.longer(r))
}

// queue enqueues a request with a long TTL.
func (p *process) queue(key string) *waiter {
	p.f.t.Helper()
	return p.enqueue(p.f.waiting(key, p.f.long()))
}

// ended returns how the Acquire ended.
func (w *waiter) ended(limit time.Duration, what string) (*lease, error) {
	w.p.f.t.Helper()
	res := await(w.p.f, limit, what, w.done)
	return res.lease, res.err
}

// granted returns the lease, or fails the check.
func (w *waiter) granted(limit time.Duration, what string) *lease {
	w.p.f.t.Helper()
	l, err := w.ended(limit, what)
	if err != nil {
		w.p.f.t.Fatalf("%s: %v", what, err)
	}
	return l
}

// stillWaits fails the check if the Acquire has returned.
func (w *waiter) stillWaits() {
	w.p.f.t.Helper()
	select {
	case res := <-w.done:
		w.p.f.t.Fatalf("a waiter returned (error %v) while another owner holds the key", res.err)
	default:
	}
}

// ending returns what ends the lease.
func (l *lease) ending() driver.Ending {
	return driver.Ending{ID: l.ID, Ref: l.Ref, Token: l.Token, Deadline: l.Deadline}
}

// release releases the lease and returns the result.
func (l *lease) release() error {
	l.p.f.t.Helper()
	return l.p.end(l.ending())[0]
}

// drop releases the lease, which must still be held.
func (l *lease) drop() {
	l.p.f.t.Helper()
	if err := l.release(); err != nil {
		l.p.f.t.Fatalf("release of a lease that is held: %v", err)
	}
}

// end calls Release.
func (p *process) end(es ...driver.Ending) []error {
	p.f.t.Helper()
	ctx := p.f.prompt()
	errs := within(p.f, promptness+grace+Slack, "release", func() []error { return p.s.Release(ctx, es) })
	if len(errs) != len(es) {
		p.f.t.Fatalf("Release of %d leases returned %d results", len(es), len(errs))
	}
	return errs
}

func (l *lease) renewal(ttl time.Duration) driver.Renewal {
	return driver.Renewal{ID: l.ID, Ref: l.Ref, Token: l.Token, TTL: ttl}
}

// renew renews the lease and keeps the later deadline.
func (l *lease) renew(ttl time.Duration) driver.Renewed {
	l.p.f.t.Helper()
	r := l.p.renew(l.renewal(ttl))[0]
	if r.Err == nil {
		l.Deadline = driver.Later(l.Deadline, r.Deadline)
	}
	return r
}

// renew calls Renew.
func (p *process) renew(rs ...driver.Renewal) []driver.Renewed {
	p.f.t.Helper()
	ctx := p.f.prompt()
	out := within(p.f, promptness+grace+Slack, "renew", func() []driver.Renewed { return p.s.Renew(ctx, rs) })
	if len(out) != len(rs) {
		p.f.t.Fatalf("Renew of %d leases returned %d results", len(rs), len(out))
	}
	return out
}

// holds fails the check unless the lease is alive, and keeps it so.
func (l *lease) holds() {
	l.p.f.t.Helper()
	if err := l.renew(l.p.f.long()).Err; err != nil {
		l.p.f.t.Fatalf("the lease that should be held: renew: %v", err)
	}
	st := l.p.f.state(l.Key)
	if !st.Held {
		l.p.f.t.Fatal("the lease was renewed, but Inspect says that the key is free")
	}
	if l.p.f.caps.Tokens != driver.NoTokens && st.Token != l.Token {
		l.p.f.t.Fatalf("the holder has token %d, but Inspect says %d", l.Token, st.Token)
	}
}

// inspected reports whether Inspect may say this token of a lease that has not been renewed.
func (f *fixture) inspected(token int64, l *lease) bool {
	return f.caps.MayBe(l.Token, token)
}
