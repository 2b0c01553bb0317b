package observe

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/manager"
)

const (
	parts  = 16
	inPart = 64 // names that a part keeps: 1,024 in all

	// Events is how many events of a key are kept.
	Events = 50

	// MaxKeys is how many keys a report has at most.
	MaxKeys = 256
	// MaxCallers is how many holders it has of each, and likewise waiters.
	MaxCallers = 16

	// MaxPolicies is how many policies of a key are remembered.
	MaxPolicies = 8
)

// Event is something that happened to a key.
type Event struct {
	At     time.Time
	Kind   manager.Kind
	Origin *Origin
	Policy string
	Token  int64
	Waited time.Duration
}

// Recorder keeps what happened lately to the busiest keys and policies. It is safe for concurrent
// use, and its locks are held for a short time only, since callers wait for them.
type Recorder struct {
	Self    *Origin
	prefix  int // length of what the manager's keys begin with
	Since   time.Time
	Version atomic.Uint64 // rises with each event

	Keys, Policies Table
}

// NewRecorder returns a recorder of an engine whose keys begin with a prefix of that length.
func NewRecorder(self *Origin, prefix int) *Recorder {
	r := &Recorder{Self: self, prefix: prefix, Since: time.Now()}
	r.Keys.init()
	r.Policies.init()
	return r
}

// Note records an event of the manager.
func (r *Recorder) Note(e manager.Event) {
	r.Version.Add(1)
	if e.Kind == manager.EventWaiting {
		return
	}
	now := time.Now()
	key, d, policy := e.Key[r.prefix:], deltaOf(e), ""
	if e.Terms != nil {
		policy = e.Terms.Name
	}
	r.Keys.With(key, now, func(rec *Record) {
		rec.Add(NumberOf(now), d)
		rec.unsent.add(d)
		rec.Remember(policy)
		rec.fresh = min(rec.fresh+1, Events)
		rec.Keep(Event{now, e.Kind, r.Self, policy, e.Token, e.Waited})
	})
	r.Policies.With(policy, now, func(rec *Record) {
		rec.Terms = e.Terms
		rec.Add(NumberOf(now), d)
		rec.unsent.add(d)
	})
}

// takeUnsent returns what no report has told of yet, and forgets it.
func (rec *Record) takeUnsent(name string, self *Origin) (k ToldKey[manager.Key]) {
	k.Told = Told{Name: name, Delta: rec.unsent}
	k.Policies = slices.Clone(rec.Policies)
	if rec.fresh > 0 {
		own := slices.DeleteFunc(rec.Latest(), func(e Event) bool { return e.Origin != self })
		k.Events = own[max(0, len(own)-min(rec.fresh, ReportEvents)):]
	}
	rec.unsent, rec.fresh = Delta{}, 0
	return k
}

// takeBack keeps for the next report what one that was not sent should have told.
func (r *Recorder) takeBack(policies []Told, keys []ToldKey[manager.Key]) {
	for i := range policies {
		r.Policies.Visit(policies[i].Name, func(rec *Record) { rec.unsent.add(policies[i].Delta) })
	}
	for i := range keys {
		k := &keys[i]
		r.Keys.Visit(k.Name, func(rec *Record) {
			rec.unsent.add(k.Delta)
			rec.fresh = min(rec.fresh+len(k.Events), Events)
		})
	}
}

// Record is what happened lately to one key or policy.
type Record struct {
	tally
	Policies []string       // that use the key
	Terms    *manager.Terms // of a policy: those that this process used last; nil if it has not used it
	events   []Event        // a ring
	next     int            // in events
	unsent   Delta          // what no report has told of
	fresh    int            // how many of the latest own events no report has told of
}

// Remember notes that a policy uses the key.
func (rec *Record) Remember(policy string) {
	if len(rec.Policies) < MaxPolicies && !slices.Contains(rec.Policies, policy) {
		rec.Policies = append(rec.Policies, policy)
	}
}

// Keep adds an event.
func (rec *Record) Keep(e Event) {
	if len(rec.events) < Events {
		rec.events = append(rec.events, e)
		return
	}
	rec.events[rec.next] = e
	rec.next = (rec.next + 1) % Events
}

// Latest returns a copy of the events, the oldest first.
func (rec *Record) Latest() []Event {
	all := slices.Concat(rec.events[rec.next:], rec.events[:rec.next])
	slices.SortStableFunc(all, func(a, b Event) int { return a.At.Compare(b.At) })
	return all
}

// Table has records by name, in parts with a mutex each.
type Table struct {
	seed  maphash.Seed
	parts [parts]part
}

type part struct {
	mu      sync.Mutex
	records map[string]*Record
	left    tally // records that were in use and made room for others, in counts[0]
}

func (t *Table) init() {
	t.seed = maphash.MakeSeed()
	for i := range t.parts {
		t.parts[i].records = make(map[string]*Record)
	}
}

// With calls f with the record of a name, which it makes if there is none.
func (t *Table) With(name string, now time.Time, f func(*Record)) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.records[name]
	if r == nil {
		if len(p.records) >= inPart {
			p.makeRoom(NumberOf(now))
		}
		r = new(Record)
		p.records[name] = r
	}
	f(r)
}

// Visit calls f with the record of a name, or does nothing if there is none.
func (t *Table) Visit(name string, f func(*Record)) {
	p := t.part(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.records[name]; r != nil {
		f(r)
	}
}

func (t *Table) part(name string) *part {
	return &t.parts[maphash.String(t.seed, name)%parts]
}

// Each calls f with all records, and returns how many were left out lately.
func (t *Table) Each(now time.Time, f func(name string, r *Record)) (left int) {
	for i := range t.parts {
		left += t.parts[i].each(NumberOf(now), f)
	}
	return left
}

func (p *part) each(number int64, f func(name string, r *Record)) (left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, r := range p.records {
		f(name, r)
	}
	d, _ := p.left.Sum(number)
	return int(d.Counts[0])
}

// makeRoom forgets the quarter of the records in which least happened.
func (p *part) makeRoom(number int64) {
	type one struct {
		name string
		busy int64
	}
	var all []one
	for name, r := range p.records {
		all = append(all, one{name, r.Happened(number)})
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.busy, b.busy) })
	for _, o := range all[:inPart/4] {
		delete(p.records, o.name)
		if o.busy > 0 {
			p.left.Add(number, Delta{Counts: [Kinds]uint32{1}})
		}
	}
}
