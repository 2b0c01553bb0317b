package manager

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Observer is told what happens to keys, while somebody watches. It is called under the lock of a
// shard too, and so takes no lock but its own.
type Observer interface{ Note(e Event) }

// Event is something that happened to a key.
type Event struct {
	Kind   Kind
	Key    string
	Terms  *Terms        // of the policy; nil if a lease was renewed that nobody wants
	Token  int64         // of the hold; 0 if there is none
	Waited time.Duration // of who got the key, or did not
}

// Kind is what happened.
type Kind uint8

// The kinds of event.
const (
	EventWaiting  Kind = iota // a caller has begun to wait
	EventTaken                // a caller got the key
	EventHandedOn             // a caller got the key within the process, without the store
	EventReleased
	EventRenewed
	EventLost // a hold ended before its release, or its store had lost it by then
	EventRefused
	EventTimedOut
	EventUnavailable // a caller did not get the key because of the store
)

var kindNames = [...]string{
	EventWaiting: "waiting", EventTaken: "taken", EventHandedOn: "handed on", EventReleased: "released",
	EventRenewed: "renewed", EventLost: "lost", EventRefused: "refused", EventTimedOut: "timed out", EventUnavailable: "unavailable",
}

// String returns the kind in a word or two.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Observe tells o what happens from here on; nil is nobody.
func (mgr *Manager) Observe(o Observer) {
	if o == nil {
		mgr.observer.Store(nil)
		return
	}
	mgr.observer.Store(&o)
}

// Gossip is the session if it can pass messages to others, or nil.
func (mgr *Manager) Gossip() driver.Gossip {
	g, _ := mgr.session.(driver.Gossip)
	return g
}

// noteGranted tells the observer of a caller who got the key.
func (h *Hold) noteGranted(o Observer, waited time.Duration) {
	kind := EventTaken
	if h.number > 0 {
		kind = EventHandedOn
	}
	o.Note(Event{kind, h.Key(), h.terms, h.Token(), waited})
}

// noteRefused tells the observer of a caller who came at start and did not get the key.
func (mgr *Manager) noteRefused(t *Terms, key string, r *Refusal, start time.Time) {
	if o := mgr.observer.Load(); o != nil {
		kind := EventRefused
		switch r.Why {
		case Timeout, DeadlineExceeded:
			kind = EventTimedOut
		case Unavailable:
			kind = EventUnavailable
		}
		(*o).Note(Event{kind, key, t, 0, time.Since(start)})
	}
}

// noteReleased tells the observer of a release, and what the caller was told. An end before the
// release was told when it came.
func (h *Hold) noteReleased(o Observer, r *Refusal) {
	switch {
	case h.ended != 0:
	case r != nil && r.Why == Lost:
		h.noteOf(o, EventLost)
	default:
		h.noteOf(o, EventReleased)
	}
}

// note tells the observer, if there is one, of something that happened to the hold.
func (h *Hold) note(kind Kind) {
	if o := h.lease.line.manager.observer.Load(); o != nil {
		h.noteOf(*o, kind)
	}
}

func (h *Hold) noteOf(o Observer, kind Kind) {
	o.Note(Event{kind, h.Key(), h.terms, h.Token(), 0})
}

// noteRenewed counts a renewal, and tells the observer.
func (l *lease) noteRenewed() {
	l.renewals++
	if o := l.line.manager.observer.Load(); o != nil {
		e := Event{Kind: EventRenewed, Key: l.Key, Token: l.line.manager.Token(l.Token)}
		switch h, next := l.hold, l.line.first; {
		case h != nil:
			e.Terms, e.Token = h.terms, h.Token()
		case next != nil:
			e.Terms = next.terms // it is renewed for that one
		}
		(*o).Note(e)
	}
}

// Key is what a manager knows of a key that is in use.
type Key struct {
	Key     string
	Holders []Holding
	Waiters []Waiting
	Holding int // in all
	Waiting int // in all
}

// Holding is a hold, or a lease that is kept without one: then Terms is nil.
type Holding struct {
	Terms     *Terms
	Mode      driver.Mode
	Limit     int
	Token     int64
	Since     time.Time // zero if there is no hold
	Deadline  time.Time
	Renewals  int
	HandOffs  int
	Contended bool
	Trace     *driver.Trace
}

// Waiting is a caller who waits.
type Waiting struct {
	Terms *Terms
	Since time.Time
	Trace *driver.Trace
}

// Look returns up to most of the keys that are in use: first those whose callers wait longest, then
// those that are held longest. Of each it returns up to callers holders, and as many waiters. It also
// returns how many keys it left out, and how many holds and waiters there are in all.
func (mgr *Manager) Look(most, callers int) (all []Key, left, holding, waiting int) {
	each := max(most/4, 1) // of a shard
	for i := range mgr.shards {
		found, more, n := mgr.shards[i].look(each, callers)
		all, left, waiting = append(all, found...), left+more, waiting+n
	}
	if len(all) > most {
		slices.SortFunc(all, func(a, b Key) int {
			return compareUse(a.use(), b.use())
		})
		left += len(all) - most
		clear(all[most:])
		all = all[:most]
	}
	return all, left, int(mgr.held.Load()), waiting
}

// LookAt is [Manager.Look] for one key. It is zero if the key is not in use.
func (mgr *Manager) LookAt(key string, callers int) Key {
	s := mgr.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if lk := s.locks[key]; lk != nil {
		return lk.describe(callers, time.Now())
	}
	return Key{}
}

// look is Look for a shard, whose mutex it holds meanwhile: it looks at each of thousands of keys,
// but describes few.
func (s *shard) look(most, callers int) (all []Key, left, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var chosen []candidate
	trim := func() {
		slices.SortFunc(chosen, func(a, b candidate) int { return compareUse(a.use, b.use) })
		if len(chosen) > most {
			left += len(chosen) - most
			chosen = chosen[:most]
		}
	}
	for _, lk := range s.locks {
		waiting += int(lk.waiting)
		if u := lk.use(); u != (use{}) {
			if chosen = append(chosen, candidate{lk, u}); len(chosen) >= 2*most {
				trim()
			}
		}
	}
	trim()
	now := time.Now()
	for _, c := range chosen {
		all = append(all, c.lock.describe(callers, now))
	}
	return all, left, waiting
}

// candidate is a key that may be described.
type candidate struct {
	lock *lock
	use  use
}

// use is since when a key has been waited for or held; zero if it is not.
type use struct{ waited, held instant }

// compareUse puts in front who is waited for longest, and then who is held longest.
func compareUse(a, b use) int {
	if c := compareSince(a.waited, b.waited); c != 0 {
		return c
	}
	return compareSince(a.held, b.held)
}

// compareSince puts the earlier of two times in front, and what is not at all behind.
func compareSince(a, b instant) int {
	switch {
	case a == b:
		return 0
	case b == 0 || a != 0 && a < b:
		return -1
	}
	return 1
}

func (lk *lock) use() (u use) {
	for ln := lk.lines; ln != nil; ln = ln.next {
		if w := ln.first; w != nil && (u.waited == 0 || at(w.since) < u.waited) {
			u.waited = at(w.since)
		}
		if l := ln.leases; l != nil {
			since := l.lingers
			if l.hold != nil {
				since = l.hold.since
			}
			if u.held == 0 || since < u.held {
				u.held = max(since, 1)
			}
		}
	}
	return u
}

// use is that of the lock which the key was described from.
func (k *Key) use() (u use) {
	if len(k.Waiters) > 0 {
		u.waited = at(k.Waiters[0].Since)
	}
	if len(k.Holders) > 0 {
		u.held = max(at(k.Holders[0].Since), 1)
	}
	return u
}

// describe returns what there is to see of a key, with so many holders and waiters at most.
func (lk *lock) describe(callers int, now time.Time) Key {
	k := Key{Key: lk.key, Waiting: int(lk.waiting)}
	for ln := lk.lines; ln != nil; ln = ln.next {
		for l := ln.leases; l != nil; l = l.next {
			k.Holding += l.describe(&k, callers, now)
		}
		for w, n := ln.first, 0; w != nil && n < callers; w, n = w.next, n+1 {
			k.Waiters = append(k.Waiters, Waiting{w.terms, w.since, w.trace})
		}
		if len(k.Waiters) > 2*callers {
			k.Waiters = firstWaiters(k.Waiters, callers)
		}
	}
	k.Waiters = firstWaiters(k.Waiters, callers)
	slices.SortFunc(k.Holders, func(a, b Holding) int { return a.Since.Compare(b.Since) })
	return k
}

func firstWaiters(all []Waiting, most int) []Waiting {
	slices.SortFunc(all, func(a, b Waiting) int { return a.Since.Compare(b.Since) })
	return all[:min(len(all), most)]
}

// describe adds to k who hold on the lease, and returns how many do. A lease that is kept without
// a hold counts as one.
func (l *lease) describe(k *Key, callers int, now time.Time) (n int) {
	out := Holding{Mode: l.line.mode, Limit: int(l.line.limit), Deadline: l.Deadline, Renewals: int(l.renewals), Contended: l.contended}
	if l.lowered {
		out.Mode = driver.Shared
	}
	if l.hold == nil {
		if len(k.Holders) < callers {
			out.Token, out.HandOffs = l.line.manager.Token(l.Token), int(max(l.handoffs, 0))
			k.Holders = append(k.Holders, out)
		}
		return 1
	}
	for h := l.hold; h != nil; h = h.next {
		if n++; len(k.Holders) < callers {
			out.Terms, out.Token, out.HandOffs, out.Trace = h.terms, h.Token(), int(h.number), h.trace()
			out.Since, out.Deadline = now.Add(-at(now).since(h.since)), h.deadline()
			k.Holders = append(k.Holders, out)
		}
	}
	return n
}
