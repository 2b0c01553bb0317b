package observe

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/queue"
)

const (
	parts  = 16
	inPart = 64 // names that a part keeps: 1,024 in all

	// Events is how many events of a key are kept.
	Events = 50

	maxPolicies = 8 // of a key that are remembered
)

// Event is something that happened to a key.
type Event struct {
	At     time.Time
	Kind   queue.Kind
	Origin *Origin
	Policy string
	Token  int64
	Waited time.Duration
}

// Origin names an engine.
type Origin struct {
	Identity string
	Instance Instance
}

// recorder keeps what happened lately to the busiest keys and policies. It is safe for concurrent
// use, and its locks are held for a short time only, since callers of the queue wait for them.
type recorder struct {
	self    *Origin
	prefix  int // length of what the queue's keys begin with
	since   time.Time
	version atomic.Uint64 // rises with each event

	keys, policies table
}

func newRecorder(self *Origin, prefix int) *recorder {
	r := &recorder{self: self, prefix: prefix, since: time.Now()}
	r.keys.init()
	r.policies.init()
	return r
}

// Note records an event of the queue.
func (r *recorder) Note(e queue.Event) {
	r.version.Add(1)
	if e.Kind == queue.EventWaiting {
		return
	}
	now := time.Now()
	key, d := e.Key[r.prefix:], deltaOf(e)
	r.keys.with(key, now, func(rec *record) {
		rec.add(numberOf(now), d)
		rec.unsent.add(d)
		rec.remember(e.Policy)
		rec.fresh = min(rec.fresh+1, Events)
		rec.keep(Event{now, e.Kind, r.self, e.Policy, e.Token, e.Waited})
	})
	r.policies.with(e.Policy, now, func(rec *record) {
		rec.add(numberOf(now), d)
		rec.unsent.add(d)
	})
}

// told records what a report of another engine says of a key.
func (r *recorder) told(k *toldKey, from *Origin, now time.Time) {
	r.keys.with(k.name, now, func(rec *record) {
		rec.add(numberOf(now), k.delta)
		for _, p := range k.policies {
			rec.remember(p)
		}
		for _, e := range k.events {
			e.Origin = from
			rec.keep(e)
		}
	})
}

// takeUnsent returns what no report has told of yet, and forgets it.
func (rec *record) takeUnsent(name string, self *Origin) (k toldKey) {
	k.told = told{name, rec.unsent}
	k.policies = slices.Clone(rec.policies)
	if rec.fresh > 0 {
		own := slices.DeleteFunc(rec.latest(), func(e Event) bool { return e.Origin != self })
		k.events = own[max(0, len(own)-min(rec.fresh, reportEvents)):]
	}
	rec.unsent, rec.fresh = delta{}, 0
	return k
}

// takeBack keeps for the next report what one that was not sent should have told.
func (r *recorder) takeBack(policies []told, keys []toldKey) {
	for i := range policies {
		r.policies.visit(policies[i].name, func(rec *record) { rec.unsent.add(policies[i].delta) })
	}
	for i := range keys {
		k := &keys[i]
		r.keys.visit(k.name, func(rec *record) {
			rec.unsent.add(k.delta)
			rec.fresh = min(rec.fresh+len(k.events), Events)
		})
	}
}

// record is what happened lately to one key or policy.
type record struct {
	tally
	policies []string // that use the key
	events   []Event  // a ring
	next     int      // in events
	unsent   delta    // what no report has told of
	fresh    int      // how many of the latest own events no report has told of
}

// remember notes that a policy uses the key.
func (rec *record) remember(policy string) {
	if len(rec.policies) < maxPolicies && !slices.Contains(rec.policies, policy) {
		rec.policies = append(rec.policies, policy)
	}
}

// keep adds an event.
func (rec *record) keep(e Event) {
	if len(rec.events) < Events {
		rec.events = append(rec.events, e)
		return
	}
	rec.events[rec.next] = e
	rec.next = (rec.next + 1) % Events
}

// latest returns a copy of the events, the oldest first.
func (rec *record) latest() []Event {
	all := slices.Concat(rec.events[rec.next:], rec.events[:rec.next])
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

// table has records by name, in parts with a mutex each.
type table struct {
	seed  maphash.Seed
	parts [parts]part
}

type part struct {
	mu      sync.Mutex
	records map[string]*record
	left    tally // records that were in use and made room for others, in counts[0]
}

func (t *table) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.parts {
		t.parts[i].records = make(map[string]*record)
	}
}

// with calls f with the record of a name, which it makes if there is none.
func (t *table) with(name string, now time.Time, f func(*record)) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records[name]
	if r == nil {
		if len(p.records) >= inPart {
			p.makeRoom(numberOf(now))
		}
		r = new(record)
		p.records[name] = r
	}
	f(r)
}

// visit calls f with the record of a name, or does nothing if there is none.
func (t *table) visit(name string, f func(*record)) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.records[name]; r != nil {
		f(r)
	}
}

func (t *table) part(name string) *part {
	return &t.parts[maphash.String(t.seed, name)%parts]
}

// each calls f with all records, and returns how many were left out lately.
func (t *table) each(now time.Time, f func(name string, r *record)) (left int) {
	for i := range t.parts {
		left += t.parts[i].each(numberOf(now), f)
	}
	return left
}

func (p *part) each(number int64, f func(name string, r *record)) (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range p.records {
		f(name, r)
	}
	d, _ := p.left.sum(number)
	return int(d.counts[0])
}

// makeRoom forgets the quarter of the records in which least happened.
func (p *part) makeRoom(number int64) {
	type one struct {
		name string
		busy int64
	}
	var all []one
	for name, r := range p.records {
		all = append(all, one{name, r.busy(number)})
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.busy, b.busy) })
	for _, o := range all[:inPart/4] {
		delete(p.records, o.name)
		if o.busy > 0 {
			p.left.add(number, delta{counts: [kinds]uint32{1}})
		}
	}
}
