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

// awaitHiddenHolders waits until the key has no hidden holder, and reports whether there was one. It
// refuses a request that would not wait.
func (req *request) awaitHiddenHolders(ctx context.Context) (waited bool, err error) {
	if err := req.checkSuspects(ctx); err != nil {
		return false, err
	}
	left := time.Until(req.s.hidden.until(req.Key))
	switch {
	case left <= 0:
		return false, nil
	case !req.Wait:
		return false, &driver.HeldError{RetryAfter: left}
	}
	req.s.sink.Waiting(req.ID)
	if !kit.Sleep(ctx, left) {
		return true, contextError(ctx)
	}
	return true, nil
}

// checkSuspects looks for the places of the key's suspects. One is no hidden holder if its place is
// still there, or has gone and its etcd lease has not.
func (req *request) checkSuspects(ctx context.Context) error {
	for _, one := range req.s.hidden.of(req.Key) {
		e := one.place
		if e == nil {
			continue
		}
		r, err := req.s.commit(ctx, nil, []clientv3.Op{clientv3.OpGet(e.name), clientv3.OpGet(aliveKeyOf(e.lease))}, nil)
		if err != nil {
			return err
		}
		there, mark := r.Responses[0].GetResponseRange().Kvs, r.Responses[1].GetResponseRange().Kvs
		if !sameAs(there, e.create) && (len(mark) == 0 || mark[0].Lease != int64(e.lease)) {
			req.s.hidden.add(req.Key, &hiddenHolder{until: one.until})
		}
		req.s.hidden.clear(req.Key, one)
	}
	return nil
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
		pred := predecessor{name: b.name, create: b.create, mod: b.mod, lease: b.lease, ttl: secondsToDuration(seconds(b.ttl))}
		if known := slices.IndexFunc(req.predecessors, func(other predecessor) bool {
			return other.name == pred.name && other.create == pred.create && other.lease == pred.lease
		}); known >= 0 {
			pred = req.predecessors[known]
		}
		all = append(all, pred)
	}
	req.predecessors = all
}

// knownPredecessors returns a copy of the predecessors.
func (req *request) knownPredecessors() predecessors {
	req.mu.Lock()
	defer req.mu.Unlock()
	return slices.Clone(req.predecessors)
}

// notePut notes what was written to a place: it may now be on another lease, or kept by nobody.
func (req *request) notePut(kv *mvccpb.KeyValue) {
	p, err := parsePlace(string(kv.Value))
	if err != nil {
		return
	}
	req.mu.Lock()
	defer req.mu.Unlock()
	is := func(pred predecessor) bool {
		return pred.name == string(kv.Key) && pred.create == kv.CreateRevision && pred.mod <= kv.ModRevision
	}
	if p.stage == kept {
		req.predecessors = slices.DeleteFunc(req.predecessors, is)
	}
	for i := range req.predecessors {
		pred := &req.predecessors[i]
		if !is(*pred) {
			continue
		}
		if pred.mod = kv.ModRevision; pred.lease != clientv3.LeaseID(kv.Lease) {
			pred.lease, pred.ttl, pred.readAt = clientv3.LeaseID(kv.Lease), secondsToDuration(seconds(p.ttl)), time.Time{}
		}
	}
}

// readTTLs reads how long the leases of the first predecessors last, of so many at most.
func (req *request) readTTLs(ctx context.Context, most int) {
	all := req.knownPredecessors()
	for _, pred := range all[:min(len(all), most)] {
		at := time.Now()
		r, _, err := retry(ctx, req.s, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return req.s.client.TimeToLive(ctx, pred.lease)
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
			req.s.hidden.add(req.Key, &hiddenHolder{until: now.Add(pred.ttl)})
		}
	}
}

// suspectPredecessors is called when the owner's place has gone too early. The places
// before it may have gone in the same way, so those that are not in the queue now are suspects;
// all of them if now is nil.
func (req *request) suspectPredecessors(now *queue) {
	at := time.Now()
	for i := range req.before {
		if b := &req.before[i]; b.stage != kept && (now == nil || !now.has(b.name, b.create)) {
			req.s.hidden.add(req.Key, &hiddenHolder{until: at.Add(secondsToDuration(seconds(b.ttl))), place: b})
		}
	}
	req.before = nil
}

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

// predecessors are the first and the last of the places before a waiter's own.
type predecessors []predecessor

// predecessor is what a waiter knows of a place before its own.
type predecessor struct {
	name        string // of the place
	create      int64
	mod         int64 // the revision of the write that was noted last
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

// readPlaces reads each place.
func (ps predecessors) readPlaces() (ops []clientv3.Op) {
	for i := range ps {
		ops = append(ops, clientv3.OpGet(ps[i].name))
	}
	return ops
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

// hiddenHolders are those who may hold a key without having a place, by key. They belong to the
// session, as they outlive the requests that found them. The zero value is ready for use.
type hiddenHolders struct {
	mu    sync.Mutex
	byKey map[string][]*hiddenHolder
}

// hiddenHolder is one of them. It does not change.
type hiddenHolder struct {
	until time.Time // it believes in its lease no longer than that
	place *entry    // of a suspect: nobody has looked whether it is still there; otherwise nil
}

func (h *hiddenHolders) add(key string, one *hiddenHolder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey == nil {
		h.byKey = make(map[string][]*hiddenHolder)
	}
	for key := range h.byKey {
		h.remove(key, func(other *hiddenHolder) bool { return time.Until(other.until) <= 0 })
	}
	h.byKey[key] = append(h.byKey[key], one)
}

// remove removes some of a key. h.mu is held.
func (h *hiddenHolders) remove(key string, some func(*hiddenHolder) bool) {
	if h.byKey[key] = slices.DeleteFunc(h.byKey[key], some); len(h.byKey[key]) == 0 {
		delete(h.byKey, key)
	}
}

// clear removes a suspect of a key that is no hidden holder.
func (h *hiddenHolders) clear(key string, suspect *hiddenHolder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(key, func(other *hiddenHolder) bool { return other == suspect })
}

// of returns all of a key.
func (h *hiddenHolders) of(key string) []*hiddenHolder {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.byKey[key])
}

// until returns until when somebody may hold the key without having a place.
func (h *hiddenHolders) until(key string) (last time.Time) {
	for _, one := range h.of(key) {
		last = driver.Later(last, one.until)
	}
	return last
}
