package etcdlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// request is one running Acquire.
type request struct {
	s *session
	driver.Request
	names names
	old   *claim // the lease to replace, if the session has it

	create     int64           // the revision at which the owner's place was created; 0: none yet
	leased     bool            // an etcd lease has to be given back
	placed     bool            // the owner has a place, or had
	unsaid     bool            // the lease was granted without a write to the place
	uncertain  bool            // a transaction that writes the place may have run twice, or may still run
	replaced   bool            // the lease to replace has ended
	tellHolder bool            // write the contended key: the caller would not wait
	refreshed  <-chan struct{} // closed when the place's etcd lease has been renewed, or need not be

	mu           sync.Mutex
	lease        etcdLease    // of the place
	leaseGone    bool         // etcd no longer knows the lease
	predecessors predecessors // of the places before this one

	before []entry // the places before, as last read; used by Acquire's goroutine only
}

// newPlace returns the value to write to the owner's place.
func (req *request) newPlace(at stage) place {
	p := place{mode: req.Mode, limit: req.Limit, ttl: req.TTL, stage: at}
	if at == holding {
		p.since = time.Now()
	}
	return p
}

// commit runs a transaction that may write the owner's place. It notes if the outcome is
// uncertain.
func (req *request) commit(ctx context.Context, ifs []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, uncertain, err := req.s.commitUncertain(ctx, ifs, then, otherwise)
	req.uncertain = req.uncertain || uncertain
	return r, err
}

// notePlace notes that the owner's place was written, on the current etcd lease.
func (req *request) notePlace() {
	req.mu.Lock()
	defer req.mu.Unlock()
	req.placed, req.lease.used = true, true
}

// adopt takes over the place that an earlier attempt of this request created.
func (req *request) adopt(own *entry) { req.create, req.placed = own.create, true }

// placeError returns driver.ErrPlaceLost if etcd no longer knows the place's lease, or else err.
func (req *request) placeError(err error) error {
	if leaseNotFound(err) {
		return driver.ErrPlaceLost
	}
	return err
}

// refreshTimeout is how long a grant waits for the renewal that was sent beside it.
const refreshTimeout = 100 * time.Millisecond

// grant makes the owner's place, created at that revision, a lease of the session, and returns it. The
// queue was read at revision rev.
func (req *request) grant(ctx context.Context, create, rev int64, contended bool) (driver.Grant, error) {
	if req.refreshed != nothingToAwait {
		timeout := time.NewTimer(refreshTimeout)
		select {
		case <-req.refreshed:
		case <-timeout.C:
		case <-ctx.Done():
		}
		timeout.Stop()
	}
	l := req.currentLease()
	deadline := l.deadline(req.TTL)
	if driver.Remaining(deadline, time.Now()) <= 0 {
		return driver.Grant{}, errors.New("etcd: the lease was granted too late to be of use")
	}
	cl := &claim{
		id: req.ID, names: req.names, create: create, granted: time.Now(), unsaid: req.unsaid,
		writing: make(chan struct{}, 1),
		leases:  []clientv3.LeaseID{l.id}, seconds: l.seconds, sent: l.sent, uncertain: req.uncertain,
		place: req.newPlace(holding), contended: contended,
	}
	cl.readAt.Store(rev)
	req.s.claims.add(cl, req.s.startWatches)
	return driver.Grant{ID: req.ID, Ref: req.names.ref(req.ID), Token: create, Deadline: deadline, Contended: contended}, nil
}

// startKeepAlive keeps the place's etcd lease alive until stop is called.
func (req *request) startKeepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	req.s.Start(func() {
		for {
			l := req.currentLease()
			third := time.Duration((0.28 + 0.04*rand.Float64()) * float64(secondsToDuration(l.seconds)))
			if !kit.Sleep(ctx, time.Until(l.sent.Add(third))) {
				return
			}
			if err := req.keepAlive(ctx); leaseNotFound(err) || err != nil && !kit.Sleep(ctx, maxPause) {
				return
			}
		}
	})
	return cancel
}

// staleLease reports whether the place's etcd lease has to be renewed, for a grant to last for its
// whole TTL.
func (req *request) staleLease() bool {
	l := req.currentLease()
	return time.Since(l.sent) >= secondsToDuration(l.seconds)/10
}

// nothingToAwait is closed.
var nothingToAwait = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// refresh renews the place's etcd lease unless that was done recently, so that a grant
// lasts for its whole TTL. The channel is closed when the renewal has ended, also in an error.
func (req *request) refresh(ctx context.Context) <-chan struct{} {
	if !req.staleLease() {
		return nothingToAwait
	}
	done := make(chan struct{})
	req.s.Start(func() {
		defer close(done)
		_ = req.keepAlive(ctx) // on an error the lease keeps its old deadline
	})
	return done
}

// keepAlive renews the place's etcd lease.
func (req *request) keepAlive(ctx context.Context) error {
	id := req.currentLease().id
	l, err := req.s.keepAlive(ctx, id)
	req.mu.Lock()
	defer req.mu.Unlock()
	switch {
	case req.lease.id != id: // the place has moved to another lease
	case leaseNotFound(err):
		req.leaseGone = true
	case err == nil && l.sent.After(req.lease.sent):
		l.used = req.lease.used
		req.lease = l
	}
	return err
}

// currentLease returns the etcd lease that the place is on.
func (req *request) currentLease() etcdLease {
	req.mu.Lock()
	defer req.mu.Unlock()
	return req.lease
}

// alive reports whether the place certainly still exists, as far as is known.
func (req *request) alive() bool {
	req.mu.Lock()
	gone := req.leaseGone
	req.mu.Unlock()
	return !gone && req.remaining() > 0
}

// remaining is how long the place certainly still exists.
func (req *request) remaining() time.Duration {
	l := req.currentLease()
	return driver.Remaining(l.deadline(secondsToDuration(l.seconds)), time.Now())
}

// begun are the requests whose first step had no answer. Acquire goes on with them. The zero value
// is ready for use.
type begun struct {
	mu     sync.Mutex
	byID   map[driver.ID]*request
	closed bool
}

// add adds a request, and reports false if nobody can go on with it any more.
func (b *begun) add(req *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	if b.byID == nil {
		b.byID = make(map[driver.ID]*request)
	}
	b.byID[req.ID] = req
	return true
}

// close returns the requests that nobody has gone on with.
func (b *begun) close() (left map[driver.ID]*request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left, b.byID, b.closed = b.byID, nil, true
	return left
}

// take removes and returns the request of an owner; nil if there is none.
func (b *begun) take(id driver.ID) *request {
	b.mu.Lock()
	defer b.mu.Unlock()
	req := b.byID[id]
	delete(b.byID, id)
	return req
}

// refusals are the keys whose requests were refused recently, or had to wait. The zero value is
// ready for use.
type refusals struct {
	mu    sync.Mutex
	byKey map[string]refusal
}

type refusal struct {
	at     time.Time // the latest
	told   time.Time
	holder int64 // the token of the holder that was told
	waited time.Time
}

const (
	// takenFor is how long a key is remembered as taken. During that time a request that
	// would not wait reads the queue first: unlike a write, a read goes to no disk.
	takenFor = time.Second

	// tellInterval is how often a session tells one holder of its refused requests.
	tellInterval = 200 * time.Millisecond

	// waitedFor is how long a key is remembered as one that has been waited for. During that
	// time a request that would wait takes its place in the queue at once.
	waitedFor = 10 * time.Second

	// maxRefusals bounds the keys that are remembered.
	maxRefusals = 1024
)

// recentlyRefused reports whether the key was found taken recently.
func (r *refusals) recentlyRefused(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byKey[key]
	return ok && now.Sub(last.at) < takenFor
}

// recentlyWaitedFor reports whether a request had to wait for the key recently.
func (r *refusals) recentlyWaitedFor(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.byKey[key]
	return ok && now.Sub(last.waited) < waitedFor
}

// recently reports whether a request was refused or had to wait recently.
func (r *refusals) recently(key string, now time.Time) bool {
	return r.recentlyRefused(key, now) || r.recentlyWaitedFor(key, now)
}

// addWait notes that a request has to wait for the key.
func (r *refusals) addWait(key string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.of(key)
	last.waited = now
	r.byKey[key] = last
}

// of returns what is known of a key, and makes room for it. r.mu is held.
func (r *refusals) of(key string) refusal {
	if r.byKey == nil || len(r.byKey) >= maxRefusals {
		r.byKey = make(map[string]refusal)
	}
	return r.byKey[key]
}

// add adds a refusal, and reports whether to tell the holder with that token.
func (r *refusals) add(key string, holder int64, now time.Time) (tell bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.of(key)
	tell = last.holder != holder || now.Sub(last.told) >= tellInterval
	if tell {
		last.holder, last.told = holder, now
	}
	last.at = now
	r.byKey[key] = last
	return tell
}
