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

// An etcd leader that was stopped for longer than a lease lasts, and then goes on, revokes
// the lease as expired, although it was renewed at the next leader (etcd-io/etcd#15247). The
// place on that lease is deleted, but its owner believes that it holds the key until it
// hears of the deletion.
//
// So a waiter that misses a place before its own asks why. Each etcd lease has an alive key.
//
//   - The alive key is still there: the owner gave the place up.
//   - Both are gone, and little was left of the lease when the waiter last read how long it
//     lasts: it has expired.
//   - Both are gone, and there was more left: the owner may still believe in its lease. It
//     is a hidden holder, and the waiter waits for as long as that can last.

const (
	// aliveKeyTTL is how long, at least, the alive key of a given-up lease stays.
	aliveKeyTTL = 5 * time.Second

	// freshness is how old a reading of a lease's TTL may be. An older one may be from
	// before a renewal.
	freshness = 2 * time.Second

	// maxPredecessors bounds the places that a waiter keeps track of.
	maxPredecessors = 4
)

// predecessor is what a waiter knows of a place before its own.
type predecessor struct {
	name        string // of the place
	create      int64
	lease       clientv3.LeaseID
	ttl         time.Duration // of the lease, from a renewal on
	readAt      time.Time     // when leftAtLeast was read; zero: never
	leftAtLeast time.Duration // how long the lease lasted from readAt on
}

// mayHaveExpired reports whether the lease had less than a second left when it was last
// read, and that was recently. The lease of a live holder rarely has so little: etcd counts
// in whole seconds.
func (p *predecessor) mayHaveExpired(now time.Time) bool {
	return p.leftAtLeast == 0 && now.Sub(p.readAt) < freshness
}

// predecessors are the first and the last of the places before a waiter's own.
type predecessors []predecessor

// awaitHiddenHolders waits until the key has no hidden holder. It refuses a request that
// would not wait.
func (req *request) awaitHiddenHolders(ctx context.Context) error {
	left := time.Until(req.s.hidden.until(req.Key))
	switch {
	case left <= 0:
		return nil
	case !req.Wait:
		return &driver.HeldError{RetryAfter: left}
	}
	req.s.sink.Waiting(req.ID)
	return req.sleepUntilNoneHidden(ctx)
}

// sleepUntilNoneHidden sleeps until the key has no hidden holder.
func (req *request) sleepUntilNoneHidden(ctx context.Context) error {
	if left := time.Until(req.s.hidden.until(req.Key)); left > 0 && !kit.Sleep(ctx, left) {
		return contextError(ctx)
	}
	return nil
}

// suspectPredecessors is called when the owner's place has gone too early. The places
// before it may have gone in the same way, so those that are not in the queue now are noted
// as hidden holders; all of them if now is nil.
func (req *request) suspectPredecessors(now *queue) {
	var longest time.Duration
	for i := range req.before {
		if b := &req.before[i]; b.stage != kept && (now == nil || !now.has(b.name, b.create)) {
			longest = max(longest, secondsToDuration(seconds(b.ttl)))
		}
	}
	if req.before = nil; longest > 0 {
		req.s.hidden.add(req.Key, time.Now().Add(longest))
	}
}

// notePredecessors notes the places before the owner's own, as they were just read.
func (req *request) notePredecessors(before []entry) {
	req.before = before
	if n := len(before); n > maxPredecessors {
		before = slices.Concat(before[:maxPredecessors/2], before[n-maxPredecessors/2:])
	}
	req.mu.Lock()
	defer req.mu.Unlock()
	var all predecessors
	for i := range before {
		b := &before[i]
		if b.stage == kept { // nobody holds it
			continue
		}
		pred := predecessor{name: b.name, create: b.create, lease: b.lease, ttl: secondsToDuration(seconds(b.ttl))}
		if known := slices.IndexFunc(req.predecessors, func(other predecessor) bool { return other.name == pred.name && other.lease == pred.lease }); known >= 0 {
			pred = req.predecessors[known]
		}
		all = append(all, pred)
	}
	req.predecessors = all
}

// notePut notes that a place was written: it may now be on another lease, or kept by nobody.
func (req *request) notePut(event *clientv3.Event) {
	if event.Type == mvccpb.Event_DELETE {
		return
	}
	p, err := parsePlace(string(event.Kv.Value))
	if err != nil {
		return
	}
	req.mu.Lock()
	defer req.mu.Unlock()
	if p.stage == kept {
		req.predecessors = slices.DeleteFunc(req.predecessors, func(pred predecessor) bool { return pred.name == string(event.Kv.Key) })
	}
	for i := range req.predecessors {
		if pred := &req.predecessors[i]; pred.name == string(event.Kv.Key) && pred.lease != clientv3.LeaseID(event.Kv.Lease) {
			pred.lease, pred.ttl, pred.readAt = clientv3.LeaseID(event.Kv.Lease), secondsToDuration(seconds(p.ttl)), time.Time{}
		}
	}
}

// readTTLs reads how long the predecessors' leases last.
func (req *request) readTTLs(ctx context.Context) {
	for _, pred := range req.knownPredecessors() {
		at := time.Now()
		r, _, err := retry(ctx, req.s, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return req.s.d.client.TimeToLive(ctx, pred.lease)
		})
		if err != nil || r.TTL < 0 {
			continue // the older reading stays, and counts only while it is fresh
		}
		req.mu.Lock()
		for i := range req.predecessors {
			if other := &req.predecessors[i]; other.name == pred.name && other.lease == pred.lease {
				other.readAt, other.leftAtLeast, other.ttl = at, secondsToDuration(r.TTL), secondsToDuration(r.GrantedTTL)
			}
		}
		req.mu.Unlock()
	}
}

// knownPredecessors returns a copy of the predecessors.
func (req *request) knownPredecessors() predecessors {
	req.mu.Lock()
	defer req.mu.Unlock()
	return slices.Clone(req.predecessors)
}

// checkPredecessors drops the predecessors that are gone, and notes a hidden holder for each
// that may still believe in its lease. before are the predecessors whose alive keys were read.
func (req *request) checkPredecessors(before predecessors, present func(name string, create int64) bool, aliveKeys []*pb.ResponseOp) {
	now := time.Now()
	req.mu.Lock()
	defer req.mu.Unlock()
	for i := range before {
		pred := &before[i]
		if present(pred.name, pred.create) {
			continue
		}
		req.predecessors = slices.DeleteFunc(req.predecessors, func(other predecessor) bool { return other.name == pred.name && other.create == pred.create })
		if lived := len(aliveKeys[i].GetResponseRange().Kvs) > 0; !lived && !pred.mayHaveExpired(now) {
			req.s.hidden.add(req.Key, now.Add(pred.ttl))
		}
	}
}

// readAliveKeys reads the alive key of each lease.
func (ps predecessors) readAliveKeys() (ops []clientv3.Op) {
	for i := range ps {
		ops = append(ops, clientv3.OpGet(aliveKeyOf(ps[i].lease), clientv3.WithKeysOnly()))
	}
	return ops
}

// allAlive compares true if each lease has its alive key.
func (ps predecessors) allAlive() (all []clientv3.Cmp) {
	for i := range ps {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(aliveKeyOf(ps[i].lease)), ">", 0))
	}
	return all
}

// hiddenHolders are the keys that somebody may hold without having a place, and until when.
// They belong to the session, as they outlive the requests that found them. The zero value
// is ready for use.
type hiddenHolders struct {
	mu    sync.Mutex
	byKey map[string]time.Time
}

func (h *hiddenHolders) add(key string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey == nil {
		h.byKey = make(map[string]time.Time)
	}
	for key, at := range h.byKey {
		if time.Until(at) <= 0 {
			delete(h.byKey, key)
		}
	}
	h.byKey[key] = driver.Later(h.byKey[key], until)
}

func (h *hiddenHolders) until(key string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byKey[key]
}
