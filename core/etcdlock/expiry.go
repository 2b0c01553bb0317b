package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// A leader of etcd that was stopped for longer than a lease lasts takes the lease for
// expired when it goes on, although it was renewed at the next leader, and has it revoked
// (etcd-io/etcd#15247). The place that was on it goes, and its owner still holds the key
// until it hears of that.
//
// So a waiter tells three endings apart. Whoever gives a place up deletes it, and what shows
// that its lease lives stays for a while yet. Where both are gone the lease has expired if it was
// due. If it was not, the waiter waits for as long as the holder may still believe in it.
// When a lease is due the waiter knows from its looks.

const (
	// lull is how long it shows at least that a place was given up.
	lull = 5 * time.Second

	// fresh is how old a look may be that says when a lease is due. An older one may be from
	// before a renewal.
	fresh = 2 * time.Second

	// looks bounds the leases that a waiter looks at.
	looks = 4
)

// outlasting returns a lease that lasts for a lull, on which to put what shows that
// others live. It ends by itself.
func (s *session) outlasting(ctx context.Context) (clientv3.LeaseID, error) {
	s.mu.Lock()
	t := s.lulls
	s.mu.Unlock()
	if t.id != clientv3.NoLease && time.Since(t.sent) < lull {
		return t.id, nil
	}
	t, err := s.newTerm(ctx, 2*lull)
	if err != nil {
		return clientv3.NoLease, err
	}
	s.mu.Lock()
	s.lulls = t
	s.mu.Unlock()
	return t.id, nil
}

// sight is what a waiter has seen of a place before its own.
type sight struct {
	name   string // of the place
	create int64
	lease  clientv3.LeaseID
	ttl    time.Duration // that the lease lasts from a renewal on
	at     time.Time     // before the latest look; zero if there was none
	left   time.Duration // that it lasted at least from then on
}

// due reports whether the lease had less than a second left a moment ago, which that of a
// holder who lives rarely has: etcd counts in whole seconds.
func (s *sight) due(now time.Time) bool { return s.left == 0 && now.Sub(s.at) < fresh }

// sights are of the first places and the last.
type sights []sight

// observe takes in which places are before the owner's own, when they were read.
func (e *enrolment) observe(before []entry) {
	e.before = before
	if n := len(before); n > looks {
		before = slices.Concat(before[:looks/2], before[n-looks/2:])
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var all sights
	for i := range before {
		b := &before[i]
		if b.stage == kept { // by nobody
			continue
		}
		s := sight{name: b.name, create: b.create, lease: b.lease, ttl: inSeconds(seconds(b.ttl))}
		if known := slices.IndexFunc(e.seen, func(k sight) bool { return k.name == s.name && k.lease == s.lease }); known >= 0 {
			s = e.seen[known]
		}
		all = append(all, s)
	}
	e.seen = all
}

// read reads what shows that the leases live.
func (s sights) read() (ops []clientv3.Op) {
	for i := range s {
		ops = append(ops, clientv3.OpGet(lifeOf(s[i].lease), clientv3.WithKeysOnly()))
	}
	return ops
}

// live is true if all of the leases live.
func (s sights) live() (all []clientv3.Cmp) {
	for i := range s {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(lifeOf(s[i].lease)), ">", 0))
	}
	return all
}

// sights returns what the waiter has seen of those before.
func (e *enrolment) sights() sights {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// judge takes in which places are gone, and which leases live, of those that were seen
// before the reading.
func (e *enrolment) judge(before sights, there func(name string, create int64) bool, lives []*pb.ResponseOp) {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range before {
		s := &before[i]
		if there(s.name, s.create) {
			continue
		}
		e.seen = slices.DeleteFunc(e.seen, func(other sight) bool { return other.name == s.name && other.create == s.create })
		if lived := len(lives[i].GetResponseRange().Kvs) > 0; !lived && !s.due(now) {
			e.s.doubts.add(e.r.Key, now.Add(s.ttl))
		}
	}
}

// doubts are the keys that somebody may hold until then although no place says so. They are the
// session's, so that they outlast the callers who found them. The zero value is ready for use.
type doubts struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (d *doubts) add(key string, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = make(map[string]time.Time)
	}
	for key, at := range d.until {
		if time.Until(at) <= 0 {
			delete(d.until, key)
		}
	}
	d.until[key] = driver.Later(d.until[key], until)
}

func (d *doubts) of(key string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until[key]
}

// suspect notes that the owner's place has gone before its time. If one place did, so may
// those before it have done that are not in the queue any more: all of them, if none is given.
func (e *enrolment) suspect(now *queue) {
	var longest time.Duration
	for i := range e.before {
		if b := &e.before[i]; b.stage != kept && (now == nil || !now.has(b.name, b.create)) {
			longest = max(longest, inSeconds(seconds(b.ttl)))
		}
	}
	if e.before = nil; longest > 0 {
		e.s.doubts.add(e.r.Key, time.Now().Add(longest))
	}
}

// heed refuses who would not wait for a key that somebody may hold unseen, and tells the others
// that they wait.
func (e *enrolment) heed(ctx context.Context) error {
	left := time.Until(e.s.doubts.of(e.r.Key))
	switch {
	case left <= 0:
		return nil
	case !e.r.Wait:
		return &driver.HeldError{RetryAfter: left}
	}
	e.s.sink.Waiting(e.r.ID)
	return e.outlast(ctx)
}

// outlast waits until nobody may hold the key unseen.
func (e *enrolment) outlast(ctx context.Context) error {
	if left := time.Until(e.s.doubts.of(e.r.Key)); left > 0 && !kit.Sleep(ctx, left) {
		return ended(ctx)
	}
	return nil
}

// sight asks how long the leases last of those before.
func (e *enrolment) sight(ctx context.Context) {
	for _, s := range e.sights() {
		at := time.Now()
		r, _, err := reach(ctx, e.s, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return e.s.d.client.TimeToLive(ctx, s.lease)
		})
		if err != nil || r.TTL < 0 {
			continue // what was seen before is old, and no proof that the lease was due
		}
		e.mu.Lock()
		for i := range e.seen {
			if k := &e.seen[i]; k.name == s.name && k.lease == s.lease {
				k.at, k.left, k.ttl = at, inSeconds(r.TTL), inSeconds(r.GrantedTTL)
			}
		}
		e.mu.Unlock()
	}
}

// moved takes in that a place was written: it may be on another lease now.
func (e *enrolment) moved(event *clientv3.Event) {
	if event.Type == mvccpb.Event_DELETE {
		return
	}
	p, err := parsePlace(string(event.Kv.Value))
	if err != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.stage == kept {
		e.seen = slices.DeleteFunc(e.seen, func(s sight) bool { return s.name == string(event.Kv.Key) })
	}
	for i := range e.seen {
		if s := &e.seen[i]; s.name == string(event.Kv.Key) && s.lease != clientv3.LeaseID(event.Kv.Lease) {
			s.lease, s.ttl, s.at = clientv3.LeaseID(event.Kv.Lease), inSeconds(seconds(p.ttl)), time.Time{}
		}
	}
}
