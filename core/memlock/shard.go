package memlock

import (
	"math"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// spares is how many unused locks a shard keeps for its next keys.
	spares = 16

	// roomy is the number of keys or waiters from which on it matters that a
	// map keeps the memory of past ones.
	roomy = 1024
)

// lock is the state of a key that is taken. A key that is not has no lock, and
// whoever waits does so at a lock: room that becomes free goes to the first
// waiters in the same step.
type lock struct {
	key     string
	holders []held
	single  [1]held // room for the first of them

	queue
	alarm struct { // runs only while somebody waits
		stop func() // nil: not set
		due  time.Time
		n    uint64 // tells an alarm from one that was stopped too late
	}
}

// held is one lease of a key.
type held struct {
	s       *session // nil: taken by nobody, for MinHold
	owner   driver.Owner
	token   int64
	granted time.Duration // after Driver.epoch
	expires time.Time     // by the store's clock
	room    int32         // how many may hold together; 0 is any number
	told    bool          // what the holder last heard about others waiting
	trace   *driver.Trace // of the request
}

// room is how many may hold a key together with such a request.
func room(r *driver.Request) int32 {
	switch r.Mode {
	case driver.Exclusive:
		return 1
	case driver.Shared:
		return 0
	default:
		return int32(min(r.Limit, math.MaxInt32))
	}
}

// heldBy returns the lease of an owner, or nil. l may be nil.
func (l *lock) heldBy(o driver.Owner) *held {
	if l == nil {
		return nil
	}
	for i := range l.holders {
		if h := &l.holders[i]; h.s != nil && h.owner == o {
			return h
		}
	}
	return nil
}

// fits reports whether one more may hold, who lets room hold together.
func (l *lock) fits(room int32) bool {
	n := int32(len(l.holders))
	for i := range l.holders {
		if r := l.holders[i].room; r != 0 && n >= r {
			return false
		}
	}
	return room == 0 || n < room
}

// origin is where the lease comes from; zero if nobody has it.
func (h *held) origin() driver.Origin {
	if h.s == nil {
		return driver.Origin{}
	}
	return driver.Origin{Identity: h.s.identity, Trace: h.trace}
}

// taker is where the first of the leases comes from; zero if there is none.
func (l *lock) taker() driver.Origin {
	if len(l.holders) == 0 {
		return driver.Origin{}
	}
	return l.holders[0].origin()
}

// firstEnd is when the first of the leases ends.
func (l *lock) firstEnd() time.Time {
	end := l.holders[0].expires
	for _, h := range l.holders[1:] {
		if h.expires.Before(end) {
			end = h.expires
		}
	}
	return end
}

// shard is a part of the key space. Everything in it is guarded by mu, and its
// methods are called with mu held.
type shard struct {
	mu      sync.Mutex
	d       *Driver
	keys    map[string]*lock
	peak    int // largest len(keys) since keys was made
	sweepAt int // len(keys) at which to look for leases that nobody released
	waiting map[driver.ID]*waiter
	crowd   int // largest len(waiting) since waiting was made
	ended   ended
	token   int64 // the latest one granted to any key
	spare   []*lock
	alarms  uint64

	_ [64]byte // keeps neighbours off each other's cache lines
}

// instant is when something happens, by the two clocks.
type instant struct {
	sent  time.Time // the process's, before the shard was locked
	store time.Time
}

// instantOf is when something happens that was asked for at now.
func (d *Driver) instantOf(now time.Time) instant { return instant{sent: now, store: d.storeTime(now)} }

// find returns the lock of a key, or nil if the key is free.
func (sh *shard) find(key string, m instant) *lock {
	l := sh.keys[key]
	if l == nil {
		return nil
	}
	live := l.holders[:0]
	for _, h := range l.holders {
		switch {
		case m.store.Before(h.expires):
			live = append(live, h)
		case h.s != nil:
			sh.ended.add(h.owner, over)
		}
	}
	if len(live) == len(l.holders) {
		return l
	}
	l.holders = live
	return sh.pass(l, m)
}

// pass gives the room that a lock has to its first waiters, or drops the lock and
// returns nil if nobody holds it and nobody waits.
func (sh *shard) pass(l *lock, m instant) *lock {
	passed := false
	for w := l.first; w != nil && l.fits(w.room); w = l.first {
		sh.leave(w)
		w.grant = l.grant(sh.take(l, w.s, w.id, w.room, w.ttl, w.trace, m), driver.Deadline(m.sent, w.ttl))
		w.finish(nil)
		passed = true
	}
	if len(l.holders) == 0 {
		sh.drop(l)
		return nil
	}
	if passed {
		sh.watch(l, m)
	}
	return l
}

// take grants a lease of a lock that has room for it.
func (sh *shard) take(l *lock, s *session, id driver.ID, room int32, ttl time.Duration, trace *driver.Trace, m instant) *held {
	sh.token++
	l.holders = append(l.holders, held{
		s: s, owner: id.Owner, room: room, token: sh.token,
		granted: m.store.Sub(sh.d.epoch), expires: m.store.Add(ttl), told: l.queue.first != nil, trace: trace,
	})
	return &l.holders[len(l.holders)-1]
}

func (l *lock) grant(h *held, deadline time.Time) driver.Grant {
	return driver.Grant{
		ID:        driver.ID{Key: l.key, Owner: h.owner},
		Token:     h.token,
		Deadline:  deadline,
		Contended: h.told,
	}
}

// extend lets a lease last for ttl from now on, unless it lasts longer already.
func (h *held) extend(ttl time.Duration, m instant) time.Time {
	if x := m.store.Add(ttl); x.After(h.expires) {
		h.expires = x
	}
	return driver.Deadline(m.sent, ttl)
}

// add returns a lock, without an owner, for a key that has none.
func (sh *shard) add(key string, m instant) *lock {
	if len(sh.keys) >= sh.sweepAt {
		sh.sweep(m)
	}
	var l *lock
	if n := len(sh.spare); n > 0 {
		l, sh.spare = sh.spare[n-1], sh.spare[:n-1]
	} else {
		l = new(lock)
	}
	if sh.keys == nil {
		sh.keys = make(map[string]*lock)
	}
	l.key, l.holders = key, l.single[:0]
	sh.keys[key] = l
	sh.peak = max(sh.peak, len(sh.keys))
	return l
}

// drop forgets a key that nobody holds and nobody waits for.
func (sh *shard) drop(l *lock) {
	delete(sh.keys, l.key)
	if len(sh.keys) == 0 && sh.peak > roomy {
		sh.keys, sh.peak = nil, 0
	}
	*l = lock{}
	if len(sh.spare) < spares {
		sh.spare = append(sh.spare, l)
	}
}

// sweep drops leases that expired without anybody asking for their keys. It
// runs when the keys have doubled, so that a grant pays for one look at most.
func (sh *shard) sweep(m instant) {
	for key, l := range sh.keys {
		if l.first == nil {
			sh.find(key, m)
		}
	}
	sh.sweepAt = max(roomy, 2*len(sh.keys))
}

// end ends an owner, whatever it is at: it ends the lease that it has, at
// once or when keep has passed since the grant, or takes its place in the queue
// away. It reports whether the lease ended by a release, this one or an
// earlier one.
func (sh *shard) end(id driver.ID, keep time.Duration, how end, m instant) (ok bool, tell sessions) {
	l := sh.find(id.Key, m)
	if h := l.heldBy(id.Owner); h != nil {
		sh.ended.add(id.Owner, how)
		if until := sh.d.epoch.Add(h.granted + keep); until.After(m.store) {
			h.s, h.owner, h.expires, h.trace = nil, driver.Owner{}, until, nil
			sh.watch(l, m)
		} else {
			l.part(h)
			if l = sh.pass(l, m); l != nil {
				return true, sh.news(l)
			}
		}
		return true, nil
	}
	if w := sh.waiting[id]; w != nil {
		return false, sh.withdraw(w, driver.ErrPlaceLost, m)
	}
	ok = sh.ended.how(id.Owner) == released
	sh.ended.add(id.Owner, over)
	return ok, nil
}

// part removes a lease.
func (l *lock) part(h *held) {
	for i := range l.holders {
		if &l.holders[i] == h {
			l.holders = append(l.holders[:i], l.holders[i+1:]...)
			return
		}
	}
}

// enqueue puts a request at the end of the queue of a taken key.
func (sh *shard) enqueue(l *lock, s *session, r *driver.Request) *waiter {
	w := &waiter{s: s, id: r.ID, ttl: r.TTL, room: room(r), trace: r.Trace, behind: l.taker(), lock: l, done: make(chan struct{})}
	l.push(w)
	if sh.waiting == nil {
		sh.waiting = make(map[driver.ID]*waiter)
	}
	sh.waiting[w.id] = w
	sh.crowd = max(sh.crowd, len(sh.waiting))
	return w
}

// leave takes a waiter out of its queue.
func (sh *shard) leave(w *waiter) {
	w.lock.remove(w)
	w.lock = nil
	delete(sh.waiting, w.id)
	if len(sh.waiting) == 0 && sh.crowd > roomy {
		sh.waiting, sh.crowd = nil, 0
	}
}

// withdraw ends a waiter with an error, and with it its owner.
func (sh *shard) withdraw(w *waiter, err error, m instant) (tell sessions) {
	l := w.lock
	sh.leave(w)
	sh.ended.add(w.id.Owner, over)
	w.finish(err)
	if l = sh.pass(l, m); l == nil {
		return nil
	}
	sh.watch(l, m)
	return sh.news(l)
}

// news queues a report for the holders if somebody began or ceased to wait for
// their key. The sessions returned, if any, are to be told once mu is released.
func (sh *shard) news(l *lock) (tell sessions) {
	for i := range l.holders {
		h := &l.holders[i]
		if h.s == nil || h.told == (l.first != nil) {
			continue
		}
		h.told = !h.told
		h.s.reports.add(report{id: driver.ID{Key: l.key, Owner: h.owner}, waiting: h.told})
		tell = append(tell, h.s)
	}
	return tell
}

// recall queues a report for the holders that somebody has asked for their key who
// would not wait. What they have heard of those who do stays as it is.
func (sh *shard) recall(l *lock) (tell sessions) {
	for i := range l.holders {
		if h := &l.holders[i]; h.s != nil && !h.told {
			h.s.reports.add(report{id: driver.ID{Key: l.key, Owner: h.owner}, waiting: true})
			tell = append(tell, h.s)
		}
	}
	return tell
}

// watch sets the alarm that ends the first of the leases while somebody waits. An
// alarm that turns out to be early, after a renewal, sets itself again.
func (sh *shard) watch(l *lock, m instant) {
	a := &l.alarm
	if l.first == nil {
		if a.stop != nil {
			a.stop()
			a.stop = nil
		}
		return
	}
	end := l.firstEnd()
	if a.stop != nil && a.due.After(end) {
		a.stop()
		a.stop = nil
	}
	if a.stop != nil {
		return
	}
	sh.alarms++
	key, n := l.key, sh.alarms
	a.n, a.due = n, end
	a.stop = sh.d.after(a.due, m.store, func() { sh.ring(key, n) })
}

func (sh *shard) ring(key string, n uint64) {
	m := sh.d.instantOf(time.Now())
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.keys[key]
	if l == nil || l.alarm.n != n || l.alarm.stop == nil {
		return
	}
	l.alarm.stop = nil
	if sh.d.fault.Load() != nil {
		return // Heal looks at every key that is waited for
	}
	if l = sh.find(key, m); l != nil {
		sh.watch(l, m)
	}
}

// waiter is one owner's place in the queue of a key. Its fields are guarded by
// the shard's mutex until done is closed and do not change after that.
type waiter struct {
	s          *session
	id         driver.ID
	ttl        time.Duration
	room       int32 // how many may hold together; 0 is any number
	trace      *driver.Trace
	behind     driver.Origin // who held the key when the waiter came
	lock       *lock         // nil once the waiter has left the queue
	prev, next *waiter

	done  chan struct{}
	grant driver.Grant
	err   error
}

// finish ends the waiting with w.grant or err. The waiter has left the queue.
func (w *waiter) finish(err error) {
	w.err = err
	close(w.done)
}

// queue holds the waiters of a key, first come first.
type queue struct {
	first, last *waiter
	n           int
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.n++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	q.n--
}

// remembered is how many of the latest ended owners a shard knows at least; it
// knows at most twice as many.
const remembered = 256

// ended remembers owners that are over, in two generations: when the younger
// one is full the older one is forgotten.
type ended struct {
	young, old map[driver.Owner]end
}

// end says how an owner ended.
type end uint8

const (
	released end = iota + 1 // by a release of a lease that it held
	over                    // otherwise: expired, replaced by force, withdrawn
)

// how returns how the owner ended, or 0 if it is not known to have ended.
func (e *ended) how(o driver.Owner) end {
	if h := e.young[o]; h != 0 {
		return h
	}
	return e.old[o]
}

// add records an end. The first one recorded stands.
func (e *ended) add(o driver.Owner, h end) {
	if e.how(o) != 0 {
		return
	}
	if len(e.young) >= remembered || e.young == nil {
		e.young, e.old = e.old, e.young
		if e.young == nil {
			e.young = make(map[driver.Owner]end)
		}
		clear(e.young)
	}
	e.young[o] = h
}
