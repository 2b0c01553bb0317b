package etcdlock

import (
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
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
