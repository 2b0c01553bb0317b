package etcdlock

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockaround/lockaround/core/driver"
)

// queue is a key's places at one revision, first come first: of those who hold it and
// of those who wait.
//
// A place is granted when its owner and all who came before it could hold the key
// together, whether they do already or not. Once that is so it stays so, since nobody
// comes to stand before an earlier one, places before it can only go, and a lease
// that is lowered lets more hold beside it. Therefore a grant needs no proof but
// that the owner's own place is still there, however old the reading was.
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

// find returns the place with that name and those before it; nil if there is none.
func (q *queue) find(name string) (own *entry, before []entry) {
	for i := range q.entries {
		if q.entries[i].name == name {
			return &q.entries[i], q.entries[:i]
		}
	}
	return nil, nil
}

// has reports whether such a place is in the queue.
func (q *queue) has(name string, create int64) bool {
	return slices.ContainsFunc(q.entries, func(e entry) bool { return e.name == name && e.create == create })
}

// admits reports whether p could hold the key together with all who came before it.
func admits(p place, before []entry) bool {
	least := p.room()
	for i := range before {
		if r := before[i].room(); r > 0 && (least == 0 || r < least) {
			least = r
		}
	}
	return least == 0 || len(before) < least
}

// watched is what a waiter hears of. Nothing else can bring its turn nearer, or only
// after this has happened.
type watched struct {
	name string // of one place; "" is the whole queue
	puts bool   // also of changes; otherwise only of the place's end
	head string // the first place of the queue, if that is another one; "" is not looked at

	places int // how many of these there are before the waiter's own
}

// watches returns what to watch for one who is not admitted yet.
func watches(p place, before []entry) watched {
	if p.mode == driver.Exclusive {
		w := watched{name: before[len(before)-1].name, places: 1}
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
	if last == nil { // the first of those who wait, beside several who hold
		return watched{puts: true, places: len(before)}
	}
	return watched{name: last.name, puts: true, places: 1}
}

// retryAfter is how long the first of the leases to end lasts at most, from a renewal on.
func (q *queue) retryAfter() time.Duration {
	var least time.Duration
	for i := range q.entries {
		if e := &q.entries[i]; e.stage != waiting && (least == 0 || e.ttl < least) {
			least = e.ttl
		}
	}
	return least
}

// token is that of the latest grant.
func (q *queue) token() int64 {
	var last int64
	for i := range q.entries {
		last = max(last, q.entries[i].token)
	}
	return last
}
