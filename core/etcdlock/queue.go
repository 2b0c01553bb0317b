package etcdlock

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockaround/lockaround/core/driver"
)

// queue is the places of a key's holders and waiters at one revision, in the order of their
// creation.
//
// A place is admitted when its owner and the owners of all places before it could hold the
// key together, whether they hold it yet or not. An admitted place stays admitted: no new
// place comes before an existing one, the places before it can only go, and a lease that is
// lowered lets more owners in. So a grant only has to check that the owner's own place still
// exists, however old the reading of the queue.
type queue struct {
	entries []entry
	rev     int64
}

func parseQueue(kvs []*mvccpb.KeyValue, rev int64) (queue, error) {
	q := queue{rev: rev, entries: make([]entry, 0, len(kvs))}
	for _, kv := range kvs {
		e, err := parseEntry(kv)
		if err != nil {
			return queue{}, err
		}
		q.entries = append(q.entries, e)
	}
	slices.SortFunc(q.entries, func(a, b entry) int { return cmp.Compare(a.create, b.create) })
	return q, nil
}

// find returns the place with that name and the places before it; nil if there is none.
func (q *queue) find(name string) (own *entry, before []entry) {
	for i := range q.entries {
		if q.entries[i].name == name {
			return &q.entries[i], q.entries[:i]
		}
	}
	return nil, nil
}

// has reports whether the place with that name and create revision is in the queue.
func (q *queue) has(name string, create int64) bool {
	return slices.ContainsFunc(q.entries, func(e entry) bool { return e.name == name && e.create == create })
}

// admits reports whether the owner of p could hold the key together with all before it.
func admits(p place, before []entry) bool {
	least := p.capacity()
	for i := range before {
		if r := before[i].capacity(); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least == 0 || len(before) < least
}

// watchTarget is what a waiter watches. Nothing else can let it in before this has changed.
type watchTarget struct {
	name string // of a place; "" is the whole queue
	puts bool   // writes count too; otherwise only deletions
	head string // the first place of the queue; "" if that is name or not needed

	places int // how many places the target has before the waiter's own
}

// watchTargetOf returns what the owner of p has to watch until it is admitted.
func watchTargetOf(p place, before []entry) watchTarget {
	if p.mode == driver.Exclusive {
		w := watchTarget{name: before[len(before)-1].name, places: 1}
		if len(before) > 1 {
			w.head = before[0].name
		}
		return w
	}
	var last *entry
	for i := range before {
		if e := &before[i]; e.mode == driver.Exclusive || e.stage == waiting && (last == nil || last.mode != driver.Exclusive) {
			last = e
		}
	}
	if last == nil { // p is the first waiter, behind several holders
		return watchTarget{puts: true, places: len(before)}
	}
	return watchTarget{name: last.name, puts: true, places: 1}
}

// retryAfter returns the shortest TTL of the leases that are held.
func (q *queue) retryAfter() time.Duration {
	var least time.Duration
	for i := range q.entries {
		if e := &q.entries[i]; e.stage != waiting && (least == 0 || e.ttl < least) {
			least = e.ttl
		}
	}
	return least
}

// token returns the token of the latest grant.
func (q *queue) token() int64 {
	var last int64
	for i := range q.entries {
		last = max(last, q.entries[i].token)
	}
	return last
}
