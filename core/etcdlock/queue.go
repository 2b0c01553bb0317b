package etcdlock

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// holds reports whether the place at index i of a queue is a lease, or may be. An owner who has waited
// for an exclusive lease does not write that it has it: nobody else can be the first of the queue.
func holds(q []entry, i int) bool {
	return q[i].stage != waiting || i == 0 && q[i].mode == driver.Exclusive
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

// countWaiting returns how many of the places wait, which are the first of a queue.
func countWaiting(entries []entry) (n int) {
	for i := range entries {
		if !holds(entries, i) {
			n++
		}
	}
	return n
}

// watchTarget is what a waiter watches. Nothing else can let it in before this has changed.
type watchTarget struct {
	name string // of a place; "" is the whole queue
	puts bool   // writes count too; otherwise only deletions
	near bool   // few places are before the waiter's own, so that the target may go at once

	places int // how many places the target has before the waiter's own
}

// watchTargetOf returns what the owner of p has to watch until it is admitted.
func watchTargetOf(p place, before []entry) watchTarget {
	near := len(before) <= maxPredecessors
	if p.mode == driver.Exclusive {
		return watchTarget{name: before[len(before)-1].name, near: near, places: 1}
	}
	var last *entry
	for i := range before {
		if e := &before[i]; e.mode == driver.Exclusive || e.stage == waiting && (last == nil || last.mode != driver.Exclusive) {
			last = e
		}
	}
	if last == nil { // p is the first waiter, behind several holders
		return watchTarget{puts: true, near: near, places: len(before)}
	}
	return watchTarget{name: last.name, puts: true, near: near, places: 1}
}

// retryAfter returns the shortest TTL of the leases that are held.
func (q *queue) retryAfter() time.Duration {
	var least time.Duration
	for i := range q.entries {
		if ttl := q.entries[i].ttl; holds(q.entries, i) && (least == 0 || ttl < least) {
			least = ttl
		}
	}
	return least
}

// token returns the token of the latest grant.
func (q *queue) token() int64 {
	var last int64
	for i := range q.entries {
		if holds(q.entries, i) {
			last = q.entries[i].create
		}
	}
	return last
}

// entry is a place as it is read from a key's queue. It stays there while its owner holds the key.
type entry struct {
	place
	name   string
	lease  clientv3.LeaseID
	create int64 // the revision of its creation, which orders the queue, and is the token of a lease
	mod    int64 // the revision of its last write
}

// place is the value that an owner writes.
type place struct {
	mode  driver.Mode
	limit int
	ttl   time.Duration // in milliseconds, rounded up
	stage stage
	since time.Time // of the grant, by the owner's clock; in microseconds
}

// stage is what an owner does with its place.
type stage byte

const (
	waiting stage = 'w'
	holding stage = 'h'
	kept    stage = 'k' // released, and free for nobody until Ending.Keep is over
)

var errMalformed = errors.New("a value that is not of this protocol")

var modeLetters = [...]string{driver.Exclusive: "e", driver.Shared: "s", driver.Semaphore: "p"}

// String returns the place as it is stored: five fields, separated by spaces.
func (p place) String() string {
	ms := (p.ttl + time.Millisecond - 1) / time.Millisecond
	since := int64(0)
	if !p.since.IsZero() {
		since = p.since.UnixMicro()
	}
	b := append(make([]byte, 0, 64), modeLetters[p.mode]...)
	b = strconv.AppendInt(append(b, ' '), int64(p.limit), 10)
	b = strconv.AppendInt(append(b, ' '), int64(ms), 10)
	b = append(b, ' ', byte(p.stage), ' ')
	b = strconv.AppendInt(b, since, 10)
	return string(b)
}

// parsePlace reads what place.String wrote.
func parsePlace(text string) (place, error) {
	f := strings.Split(text, " ")
	if len(f) != 5 || len(f[3]) != 1 {
		return place{}, errMalformed
	}
	p := place{stage: stage(f[3][0])}
	known := false
	for m, letter := range modeLetters {
		if f[0] == letter {
			p.mode, known = driver.Mode(m), true
		}
	}
	limit, e1 := strconv.Atoi(f[1])
	ms, e2 := strconv.ParseInt(f[2], 10, 64)
	since, e3 := strconv.ParseInt(f[4], 10, 64)
	if err := errors.Join(e1, e2, e3); err != nil || !known {
		return place{}, errMalformed
	}
	p.limit, p.ttl = limit, time.Duration(ms)*time.Millisecond
	if since != 0 {
		p.since = time.UnixMicro(since)
	}
	switch {
	case p.stage != waiting && p.stage != holding && p.stage != kept,
		(p.mode == driver.Semaphore) != (limit > 0) || limit < 0,
		ms < 0 || ms > math.MaxInt64/int64(time.Millisecond),
		since < 0,
		p.String() != text:
		return place{}, errMalformed
	}
	return p, nil
}

func parseEntry(kv *mvccpb.KeyValue) (entry, error) {
	p, err := parsePlace(string(kv.Value))
	if err != nil {
		return entry{}, &driver.PermanentError{Err: fmt.Errorf("etcd: read the queue of a key: %w", err)}
	}
	return entry{
		place: p, name: string(kv.Key), lease: clientv3.LeaseID(kv.Lease),
		create: kv.CreateRevision, mod: kv.ModRevision,
	}, nil
}

// capacity returns how many may hold the key together with this place, itself included; 0 is
// any number.
func (p *place) capacity() int {
	switch p.mode {
	case driver.Exclusive:
		return 1
	case driver.Semaphore:
		return p.limit
	default:
		return 0
	}
}

// names are the names that an owner uses for a key.
type names struct {
	prefix    string // of all names of the key
	queue     string // the prefix of all places
	place     string // the owner's, on its first etcd lease; see withPlace
	contended string
}

// namesOf returns the names for an owner, apart from its place.
func namesOf(id driver.ID) names {
	prefix := keyPrefixOf(id.Key)
	return names{prefix: prefix, queue: prefix + queuePart, contended: prefix + contendedPart + ownerName(id)}
}

// withPlace returns the names with the place of an owner whose first etcd lease is that one. etcd
// searches all names that a key has had, until they are compacted away. So the places that are on
// a lease one after the other have one name. It is as long as that of an owner, which releases
// before this one write, and which begins with zeros for nobody.
func (n names) withPlace(on clientv3.LeaseID, from driver.Origin) names {
	number := binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(on)) // its bits
	n.place = n.queue + hex.EncodeToString(number) + suffix(from)
	return n
}

// ref returns what another session finds the owner's place by.
func (n names) ref(id driver.ID) string { return ownerName(id) + refSeparator + n.place[len(n.queue):] }

// byRef reads the place of an owner. ok is false if ref is another owner's. Releases before this
// one grant leases without a ref, whose place has the owner's name.
func (n names) byRef(id driver.ID, ref string) (read clientv3.Op, ok bool) {
	owner, place, found := strings.Cut(ref, refSeparator)
	if !found {
		return clientv3.OpGet(n.queue+ownerName(id), clientv3.WithPrefix()), ref == ""
	}
	return clientv3.OpGet(n.queue + place), owner == ownerName(id)
}

const refSeparator = " is at "

func ownerName(id driver.ID) string { return hex.EncodeToString(id.Owner[:]) }

// KeyPrefix begins the name of every key in etcd, and is the version of the protocol.
// Grant a role readwrite on it with --prefix.
const KeyPrefix = "la1/"

// The two kinds of names of a key. Neither is a prefix of the other.
const (
	queuePart     = "q/" // the place of an owner; see suffix for the end of its name
	contendedPart = "k/" // written for a moment by an owner that would not wait
)

// keyPrefixOf returns the prefix of all names of a key. The key is escaped, so that the
// prefix of one key never begins with that of another.
func keyPrefixOf(key string) string { return KeyPrefix + url.PathEscape(key) + "/" }

// aliveKeyOf returns the name of a lease's alive key. That key is on the lease and is deleted
// with it, so it shows that the lease has not ended. Its name has no key's prefix, since a
// bare % is always escaped.
func aliveKeyOf(id clientv3.LeaseID) string { return fmt.Sprintf("%s%%/%x", KeyPrefix, int64(id)) }

// The name of a place ends with where it comes from. Whoever reads a queue reads the names of
// all places, so that this costs no key and no request more; and releases that do not name their
// places compare names only, and leave their ends alone. After the etcd lease follow a slash, the
// identity of the session, and for a traced request an asterisk and its trace.

// suffix returns the end of the name of a place that comes from there.
func suffix(from driver.Origin) string {
	if !from.Known() {
		return ""
	}
	end := "/" + from.Identity
	if from.Trace != nil {
		end += "*" + base64.RawURLEncoding.EncodeToString(from.Trace.Append(nil))
	}
	return end
}

// originOf returns where a place comes from, by its name.
func originOf(name string) (from driver.Origin) {
	parts := strings.SplitN(name, "/", 4) // the first three are the key's and of a fixed number
	place := parts[len(parts)-1]
	owner := hex.EncodedLen(len(driver.Owner{}))
	if len(parts) < 4 || len(place) <= owner || place[owner] != '/' {
		return from
	}
	identity, trace, _ := strings.Cut(place[owner+1:], "*")
	from.Identity = identity
	if b, err := base64.RawURLEncoding.DecodeString(trace); err == nil {
		from.Trace = driver.ParseTrace(string(b))
	}
	return from
}

// taker returns where the first of the places comes from whose owner holds the key.
func (q *queue) taker() driver.Origin {
	for i := range q.entries {
		if e := &q.entries[i]; holds(q.entries, i) && e.stage != kept {
			return originOf(e.name)
		}
	}
	return driver.Origin{}
}
