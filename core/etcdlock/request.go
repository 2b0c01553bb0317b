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

// grant makes the owner's place a lease of the session, and returns it.
func (req *request) grant(ctx context.Context, create, token int64, contended bool) (driver.Grant, error) {
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
	place := req.newPlace(holding)
	place.token = token
	req.s.claims.add(&claim{
		id: req.ID, names: req.names, create: create, granted: time.Now(), token: token,
		writing: make(chan struct{}, 1),
		leases:  []clientv3.LeaseID{l.id}, seconds: l.seconds, sent: l.sent, uncertain: req.uncertain,
		place: place, contended: contended,
	}, req.s.startWatches)
	return driver.Grant{ID: req.ID, Ref: req.names.ref(req.ID), Token: token, Deadline: deadline, Contended: contended}, nil
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
