package memlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// session models one process. It runs no goroutine.
type session struct {
	d        *Driver
	sink     driver.Sink
	timeout  time.Duration
	identity string

	closed  atomic.Bool
	done    chan struct{} // closed with the session
	reports reports
}

// reach returns nil when the store answers. The store that stalls or closes
// right after that is noticed under the shard's mutex.
func (s *session) reach(ctx context.Context) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if f := s.d.fault.Load(); f != nil {
		return s.suffer(ctx, f)
	}
	return nil
}

// Ping reports whether the store answers.
func (s *session) Ping(ctx context.Context) error { return s.reach(ctx) }

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	err := check(&r)
	if err == nil {
		err = s.reach(ctx)
	}
	for err == nil {
		g, w, tell, asked := s.ask(&r, s.d.instantOf(time.Now()))
		if asked == errAgain {
			err = s.reach(ctx)
			continue
		}
		tell.deliver()
		if w == nil {
			return g, asked
		}
		driver.TakenBy(s.sink, r.ID, w.behind)
		s.sink.Waiting(r.ID)
		return s.wait(ctx, w)
	}
	s.giveUp(&r)
	return driver.Grant{}, err
}

// check refuses what an engine refuses when it compiles a policy.
func check(r *driver.Request) error {
	if r.Mode > driver.Semaphore {
		return &driver.PermanentError{Err: fmt.Errorf("acquire in mode %d, which driver memory does not know", r.Mode)}
	}
	if r.Mode == driver.Semaphore && r.Limit < 1 {
		return &driver.PermanentError{Err: fmt.Errorf("acquire of a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	}
	if r.TTL < minTTL {
		return &driver.PermanentError{Err: fmt.Errorf("acquire for %v: driver memory needs at least %v", r.TTL, minTTL)}
	}
	if r.Replace != nil && r.Replace.Key != r.Key {
		return &driver.PermanentError{Err: fmt.Errorf("acquire that replaces a lease: the lease is of another key")}
	}
	return nil
}

// ask takes a lease or a place in the queue, in one step.
func (s *session) ask(r *driver.Request, m instant) (g driver.Grant, w *waiter, tell sessions, err error) {
	sh := s.d.of(r.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if s.closed.Load() || s.d.fault.Load() != nil {
		return g, nil, nil, errAgain
	}
	l := sh.find(r.Key, m)
	var old *held
	if r.After != nil {
		_, tell = sh.end(r.After.ID, 0, released, m)
		l = sh.keys[r.Key]
	}
	if r.Replace != nil {
		if old = l.heldBy(r.Replace.Owner); old == nil {
			_, tell = sh.end(r.Replace.ID, 0, released, m)
			l = sh.keys[r.Key]
		}
	}
	switch h := l.heldBy(r.Owner); {
	case sh.ended.how(r.Owner) != 0:
		if old != nil {
			sh.end(r.Replace.ID, 0, released, m)
		}
		return g, nil, tell, driver.ErrPlaceLost

	case h != nil:
		return l.grant(h, h.extend(r.TTL, m)), nil, tell, nil

	case sh.waiting[r.ID] != nil:
		// The same request again, while the first one waits.
		return g, sh.waiting[r.ID], tell, nil

	case l == nil:
		l = sh.add(r.Key, m)
	case old != nil:
		sh.ended.add(r.Replace.Owner, released)
		l.part(old)
	}
	if l.first == nil && l.fits(room(r)) {
		return l.grant(sh.take(l, s, r.ID, room(r), r.TTL, r.Trace, m), driver.Deadline(m.sent, r.TTL)), nil, tell, nil
	}
	full := r.MaxWaiting > 0 && l.n >= r.MaxWaiting && r.Replace == nil
	if r.Wait && !full {
		w = sh.enqueue(l, s, r)
	}
	if old != nil {
		sh.pass(l, m)
	}
	if w == nil {
		sh.ended.add(r.Owner, over)
		if old == nil {
			tell = append(tell, sh.recall(l)...)
		}
		return g, nil, tell, &driver.HeldError{Full: r.Wait, RetryAfter: l.firstEnd().Sub(m.store), Holder: l.taker()}
	}
	if tell == nil {
		tell = sh.news(l)
	}
	sh.watch(l, m)
	return g, w, tell, nil
}

// wait blocks until w is granted, or has ended otherwise.
func (s *session) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	select {
	case <-w.done:
		return w.grant, w.err
	case <-ctx.Done():
	}
	m := s.d.instantOf(time.Now())
	sh := s.d.of(w.id.Key)
	sh.mu.Lock()
	var tell sessions
	if w.lock != nil {
		tell = sh.withdraw(w, ctx.Err(), m)
	}
	sh.mu.Unlock()
	tell.deliver()
	return w.grant, w.err
}

// giveUp ends the owners of a request that failed, as the clean-up after a
// request that may have been executed.
func (s *session) giveUp(r *driver.Request) {
	m := s.d.instantOf(time.Now())
	s.end(r.ID, 0, over, m)
	if r.Replace != nil {
		s.end(r.Replace.ID, 0, released, m)
	}
}

// end ends an owner and reports whether its lease ended by a release.
func (s *session) end(id driver.ID, keep time.Duration, how end, m instant) bool {
	sh := s.d.of(id.Key)
	sh.mu.Lock()
	ok, tell := sh.end(id, keep, how, m)
	sh.mu.Unlock()
	tell.deliver()
	return ok
}

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	err := s.reach(ctx)
	for i := range rs {
		if err != nil {
			out[i].Err = err
		} else {
			out[i] = s.renew(&rs[i])
		}
	}
	return out
}

func (s *session) renew(r *driver.Renewal) driver.Renewed {
	m := s.d.instantOf(time.Now())
	sh := s.d.of(r.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.find(r.Key, m)
	h := l.heldBy(r.Owner)
	if h == nil {
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	out := driver.Renewed{Deadline: h.extend(r.TTL, m), Contended: l.first != nil}
	if r.Share && h.room == 1 {
		h.room = 0
		sh.pass(l, m)
	}
	return out
}

// Release ends leases.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	errs := make([]error, len(rs))
	err := s.reach(ctx)
	for i := range rs {
		switch r := &rs[i]; {
		case err != nil:
			errs[i] = err
		case !s.end(r.ID, r.Keep, released, s.d.instantOf(time.Now())):
			errs[i] = driver.ErrNotHeld
		}
	}
	return errs
}

// report says whether others wait for a lease, or that it is lost.
type report struct {
	id      driver.ID
	waiting bool
	lost    error
}

// reports are to be delivered to a session's sink in the order in which they
// came about. They are added under a shard's mutex and delivered without one,
// by whichever call gets there first: a sink may take locks of its own.
type reports struct {
	mu         sync.Mutex
	queue      []report
	delivering bool
}

func (q *reports) add(r report) {
	q.mu.Lock()
	q.queue = append(q.queue, r)
	q.mu.Unlock()
}

// sessions are those that have reports to be delivered.
type sessions []*session

func (all sessions) deliver() {
	for _, s := range all {
		s.deliver()
	}
}

// deliver hands the session its reports.
func (s *session) deliver() {
	q := &s.reports
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.delivering {
		return
	}
	q.delivering = true
	for len(q.queue) > 0 {
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		for _, r := range batch {
			switch {
			case s.closed.Load():
			case r.lost != nil:
				s.sink.Lost(r.id, r.lost)
			default:
				s.sink.Contended(r.id, r.waiting)
			}
		}
		q.mu.Lock()
	}
	q.delivering = false
}

var _ driver.PromptAll = (*session)(nil)

// Begin takes a lease or a place in the queue. A store that does not answer is left
// to Acquire.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if s.silent() || check(&r) != nil {
		return g, false, nil
	}
	g, w, tell, err := s.ask(&r, s.d.instantOf(now))
	if err == errAgain {
		return g, false, nil
	}
	tell.deliver()
	return g, w == nil, err
}

// BeginAll begins one request after the other: none of them takes any time.
func (s *session) BeginAll(rs []driver.Request, now time.Time, begun []driver.Begun) {
	for i, r := range rs {
		b := &begun[i]
		b.Grant, b.Done, b.Err = s.Begin(r, now)
	}
}

// End ends a lease.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	switch {
	case s.silent():
		return false, nil
	case !s.end(e.ID, e.Keep, released, s.d.instantOf(now)):
		return true, driver.ErrNotHeld
	}
	return true, nil
}

func (s *session) silent() bool { return s.closed.Load() || s.d.fault.Load() != nil }

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.reach(ctx); err != nil {
		return driver.State{}, err
	}
	m := s.d.instantOf(time.Now())
	sh := s.d.of(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.find(key, m)
	if l == nil {
		return driver.State{}, nil
	}
	st := driver.State{Held: true, Remaining: l.firstEnd().Sub(m.store), Waiting: l.n}
	for _, h := range l.holders {
		st.Token = max(st.Token, h.token)
		st.Holders = append(st.Holders, h.describe(s.d, m))
	}
	return st, nil
}

func (h *held) describe(d *Driver, m instant) driver.Holder {
	out := driver.Holder{Token: h.token, Since: d.epoch.Add(h.granted), Remaining: h.expires.Sub(m.store), Kept: h.s == nil, Origin: h.origin()}
	switch h.room {
	case 1:
		out.Mode = driver.Exclusive
	case 0:
		out.Mode = driver.Shared
	default:
		out.Mode, out.Limit = driver.Semaphore, int(h.room)
	}
	return out
}

// Oust ends leases, whoever has them.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	m := s.d.instantOf(time.Now())
	sh := s.d.of(key)
	sh.mu.Lock()
	var tell sessions
	if l := sh.find(key, m); l != nil {
		l.holders = slices.DeleteFunc(l.holders, func(h held) bool {
			if h.token > upTo {
				return false
			}
			if h.s != nil {
				sh.ended.add(h.owner, over)
				h.s.reports.add(report{id: driver.ID{Key: key, Owner: h.owner}, lost: errOusted})
				tell = append(tell, h.s)
			}
			return true
		})
		if l = sh.pass(l, m); l != nil {
			tell = append(tell, sh.news(l)...)
		}
	}
	sh.mu.Unlock()
	tell.deliver()
	return nil
}

// errOusted is the cause of a lease that somebody else has ended.
var errOusted = errors.New("memory: the lease was taken from its holder")

var _ driver.Lister = (*session)(nil)

// List names the keys that are taken, a shard of the key space at a time.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (driver.Page, error) {
	if err := s.reach(ctx); err != nil {
		return driver.Page{}, err
	}
	var page driver.Page
	first, err := strconv.Atoi(cmp.Or(after, "0"))
	if err != nil || first < 0 {
		return page, &driver.PermanentError{Err: fmt.Errorf("list keys after %q, which no page has returned", after)}
	}
	m := s.d.instantOf(time.Now())
	for i := first; i < shards; i++ {
		if len(page.Keys) >= limit {
			page.Next = strconv.Itoa(i)
			break
		}
		page.Keys = append(page.Keys, s.d.shard[i].named(prefix, m)...)
	}
	return page, nil
}

// named returns the keys that are taken and begin with prefix.
func (sh *shard) named(prefix string, m instant) (keys []string) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key := range sh.keys {
		if strings.HasPrefix(key, prefix) && sh.find(key, m) != nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// Close ends every call in progress. Leases go on until they expire.
func (s *session) Close(context.Context) error {
	if s.closed.Swap(true) {
		return nil
	}
	close(s.done)
	s.d.topics.forget(s)
	s.d.withdrawAll(driver.ErrClosed, func(w *waiter) bool { return w.s == s })
	return nil
}
