package memlock

import (
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
// whoever waits does so at a lock: a lock that becomes free goes to the first
// waiter in the same step.
type lock struct {
	key     string
	holder  *session // nil: taken by nobody, for MinHold
	owner   driver.Owner
	token   int64
	granted time.Time // these two by the store's clock
	expires time.Time
	told    bool // what the holder last heard about others waiting

	queue
	alarm struct { // runs only while somebody waits
		stop func() // nil: not set
		due  time.Time
		n    uint64 // tells an alarm from one that was stopped too late
	}
}

func (l *lock) heldBy(o driver.Owner) bool { return l != nil && l.holder != nil && l.owner == o }

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

// moment is when something happens, by the two clocks.
type moment struct {
	sent  time.Time // the process's, before the shard was locked
	store time.Time
}

func (d *Driver) moment() moment {
	t := time.Now()
	return moment{sent: t, store: d.storeTime(t)}
}

// find returns the lock of a key, or nil if the key is free.
func (sh *shard) find(key string, m moment) *lock {
	l := sh.keys[key]
	if l == nil || m.store.Before(l.expires) {
		return l
	}
	if l.holder != nil {
		sh.ended.add(l.owner, over)
	}
	return sh.free(l, m)
}

// free passes a lock on to its first waiter, or drops it and returns nil.
func (sh *shard) free(l *lock, m moment) *lock {
	w := l.first
	if w == nil {
		sh.drop(l)
		return nil
	}
	sh.leave(w)
	w.grant = sh.take(l, w.s, w.id, w.ttl, m)
	w.finish(nil)
	sh.watch(l, m)
	return l
}

// take grants a lock that has no owner.
func (sh *shard) take(l *lock, s *session, id driver.ID, ttl time.Duration, m moment) driver.Grant {
	sh.token++
	l.holder, l.owner, l.token = s, id.Owner, sh.token
	l.granted, l.expires = m.store, m.store.Add(ttl)
	l.told = l.others(s)
	return l.grant(driver.Deadline(m.sent, ttl))
}

func (l *lock) grant(deadline time.Time) driver.Grant {
	return driver.Grant{
		ID:        driver.ID{Key: l.key, Owner: l.owner},
		Token:     l.token,
		Deadline:  deadline,
		Contended: l.told,
	}
}

// extend lets a lease last for ttl from now on, unless it lasts longer already.
func (l *lock) extend(ttl time.Duration, m moment) time.Time {
	if x := m.store.Add(ttl); x.After(l.expires) {
		l.expires = x
	}
	return driver.Deadline(m.sent, ttl)
}

// add returns a lock, without an owner, for a key that has none.
func (sh *shard) add(key string, m moment) *lock {
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
	l.key = key
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
func (sh *shard) sweep(m moment) {
	for key, l := range sh.keys {
		if l.first == nil {
			sh.find(key, m)
		}
	}
	sh.sweepAt = max(roomy, 2*len(sh.keys))
}

// end ends an owner, whatever it is at: it frees the lease that it holds, at
// once or when keep has passed since the grant, or takes its place in the queue
// away. It reports whether the lease ended by a release, this one or an
// earlier one.
func (sh *shard) end(id driver.ID, keep time.Duration, how end, m moment) (ok bool, tell *session) {
	l := sh.find(id.Key, m)
	if l.heldBy(id.Owner) {
		sh.ended.add(id.Owner, how)
		if until := l.granted.Add(keep); until.After(m.store) {
			l.holder, l.owner, l.expires = nil, driver.Owner{}, until
			sh.watch(l, m)
		} else {
			sh.free(l, m)
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

// enrol puts a request at the end of the queue of a taken key.
func (sh *shard) enrol(l *lock, s *session, r *driver.Request) *waiter {
	w := &waiter{s: s, id: r.ID, ttl: r.TTL, lock: l, done: make(chan struct{})}
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
func (sh *shard) withdraw(w *waiter, err error, m moment) (tell *session) {
	l := w.lock
	sh.leave(w)
	sh.ended.add(w.id.Owner, over)
	w.finish(err)
	sh.watch(l, m)
	return sh.news(l)
}

// news queues a report for the holder if others began or ceased to wait for its
// key. The session returned, if any, is to be told once mu is released.
func (sh *shard) news(l *lock) (tell *session) {
	if l.holder == nil || l.told == l.others(l.holder) {
		return nil
	}
	l.told = !l.told
	l.holder.reports.add(report{id: driver.ID{Key: l.key, Owner: l.owner}, waiting: l.told})
	return l.holder
}

// watch sets the alarm that ends the lease while somebody waits for it. An
// alarm that turns out to be early, after a renewal, sets itself again.
func (sh *shard) watch(l *lock, m moment) {
	a := &l.alarm
	if a.stop != nil && (l.first == nil || a.due.After(l.expires)) {
		a.stop()
		a.stop = nil
	}
	if a.stop != nil || l.first == nil {
		return
	}
	sh.alarms++
	key, n := l.key, sh.alarms
	a.n, a.due = n, l.expires
	a.stop = sh.d.after(a.due, m.store, func() { sh.ring(key, n) })
}

func (sh *shard) ring(key string, n uint64) {
	m := sh.d.moment()
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
