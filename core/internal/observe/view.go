package observe

import (
	"cmp"
	"encoding/hex"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
)

// Limits of what a view has.
const (
	MaxKeys      = 256
	MaxPolicies  = 256
	MaxProcesses = 128
	MaxCallers   = 16 // holders of a key, and likewise waiters, of one process

	// MaxTogether is how many holders of a key, and likewise waiters, of all processes together.
	// Those of this process are always among them.
	MaxTogether = 128
)

// Instance names an engine: at random, so that two never have the same.
type Instance [8]byte

// String returns the instance in hexadecimal digits.
func (i Instance) String() string { return hex.EncodeToString(i[:]) }

// View is what is known at one time.
type View struct {
	At, Since time.Time
	Alone     string
	Processes []Process
	Keys      []Key
	Policies  []Policy
	Dropped   int
}

// Process is an engine in the namespace.
type Process struct {
	Identity string
	Instance string
	Self     bool
	Heard    time.Time
	Gone     time.Time
	Closed   bool
	Held     int
	Waiting  int
	Dropped  int
}

// Key is what is known of a key.
type Key struct {
	Key      string
	Policies []string
	Holders  []Holder
	Waiters  []Waiter
	Holding  int
	Waiting  int
	Counts   Counts
	Waits    []Bucket
	Events   []Event
}

// Policy is what is known of the policies of one name.
type Policy struct {
	Name   string
	Counts Counts
	Waits  []Bucket
}

// Holder is one caller who holds a key, or a lease that its process keeps without one.
type Holder struct {
	Identity  string
	Instance  string
	Self      bool
	Policy    string
	Mode      driver.Mode
	Limit     int
	Idle      bool
	Token     int64
	Since     time.Time
	Until     time.Time
	Renewals  int
	HandOffs  int
	Contended bool
	TraceID   trace.TraceID
	SpanID    trace.SpanID
}

// Waiter is one caller who waits for a key.
type Waiter struct {
	Identity string
	Instance string
	Self     bool
	Policy   string
	Mode     driver.Mode
	Since    time.Time
	TraceID  trace.TraceID
	SpanID   trace.SpanID
}

// usage is what one engine says of the present use of a key.
type usage struct {
	holders          []Holder
	waiters          []Waiter
	holding, waiting int
}

// usageOf returns how the queue of this engine uses a key.
func usageOf(k *queue.Key, self *Origin) usage {
	u := usage{holding: k.Holding, waiting: k.Waiting}
	instance := self.Instance.String()
	for _, h := range k.Holders {
		to := Holder{
			Identity: self.Identity, Instance: instance, Self: true, Mode: h.Mode, Limit: h.Limit, Idle: h.Terms == nil,
			Token: h.Token, Since: h.Since, Until: h.Deadline, Renewals: h.Renewals, HandOffs: h.HandOffs, Contended: h.Contended,
		}
		if h.Terms != nil {
			to.Policy = h.Terms.Name
		}
		to.TraceID, to.SpanID = spanOf(h.Trace)
		u.holders = append(u.holders, to)
	}
	for _, w := range k.Waiters {
		to := Waiter{Identity: self.Identity, Instance: instance, Self: true, Policy: w.Terms.Name, Mode: w.Terms.Mode, Since: w.Since}
		to.TraceID, to.SpanID = spanOf(w.Trace)
		u.waiters = append(u.waiters, to)
	}
	return u
}

func spanOf(t *driver.Trace) (trace.TraceID, trace.SpanID) {
	if t == nil {
		return trace.TraceID{}, trace.SpanID{}
	}
	return t.TraceID, t.SpanID
}

// candidate is a key that may be shown.
type candidate struct {
	name    string
	tie     uint64 // at random, but always the same for the name
	used    []usage
	busy    int64
	waited  time.Time // since when; zero if nobody waits
	held    time.Time // likewise
	holding bool
}

func (c *candidate) use(u usage) {
	c.used = append(c.used, u)
	for _, w := range u.waiters {
		c.waited = earlier(c.waited, w.Since)
	}
	for _, h := range u.holders {
		c.held = earlier(c.held, h.Since)
		c.holding = true
	}
}

// earlier returns the earlier of two times of which each may be zero for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// compare puts in front who waits longest, then the busiest, then who holds longest. The names are
// no part of it: whoever sees keys without their names, and may lock some, would find the others'
// names by where they are among his own.
func (c *candidate) compare(other *candidate) int {
	return cmp.Or(
		compareSince(c.waited, other.waited),
		cmp.Compare(other.busy, c.busy),
		compareSince(c.held, other.held),
		cmp.Compare(c.tie, other.tie),
	)
}

func compareSince(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// ties is what the order of keys that are alike is made with.
var ties = maphash.MakeSeed()

// candidates are the keys that may be shown, by name.
type candidates map[string]*candidate

func (all candidates) of(name string) *candidate {
	c := all[name]
	if c == nil {
		c = &candidate{name: name, tie: maphash.String(ties, name)}
		all[name] = c
	}
	return c
}

// best returns the first of the keys in their order, at most so many.
func (all candidates) best(most int) []*candidate {
	list := make([]*candidate, 0, len(all))
	for _, c := range all {
		list = append(list, c)
	}
	slices.SortFunc(list, (*candidate).compare)
	return list[:min(len(list), most)]
}

// key makes the view of a key.
func (r *recorder) key(c *candidate, now time.Time) Key {
	k := Key{Key: c.name}
	var holders longestOf[Holder]
	var waiters longestOf[Waiter]
	for _, u := range c.used {
		for i := range u.holders {
			holders.add(&u.holders[i], u.holders[i].Since, u.holders[i].Self)
		}
		for i := range u.waiters {
			waiters.add(&u.waiters[i], u.waiters[i].Since, u.waiters[i].Self)
		}
		k.Holding, k.Waiting = k.Holding+u.holding, k.Waiting+u.waiting
	}
	k.Holders, k.Waiters = holders.all(), waiters.all()
	r.keys.visit(c.name, func(rec *record) {
		k.Counts, k.Waits = rec.counts(r.since, now), rec.waits(r.since, now)
		k.Events = rec.latest()
		k.Policies = slices.Clone(rec.policies)
	})
	for _, h := range k.Holders {
		k.Policies = with(k.Policies, h.Policy)
	}
	for _, w := range k.Waiters {
		k.Policies = with(k.Policies, w.Policy)
	}
	slices.Sort(k.Policies)
	return k
}

// longestOf chooses from the callers of all processes those to be shown, without copying the others:
// they may be 30 times as large as the messages that told of them.
type longestOf[T any] struct {
	list []dated[T]
	from time.Time // who came later than that has no place any more
}

type dated[T any] struct {
	caller *T
	since  time.Time
	self   bool
}

func (l *longestOf[T]) add(caller *T, since time.Time, self bool) {
	if !self && !l.from.IsZero() && since.After(l.from) {
		return
	}
	l.list = append(l.list, dated[T]{caller, since, self})
	if len(l.list) >= 2*MaxTogether {
		l.trim()
	}
}

// trim leaves as many as are shown: those of this process, and who came first.
func (l *longestOf[T]) trim() {
	if len(l.list) <= MaxTogether {
		return
	}
	slices.SortStableFunc(l.list, func(a, b dated[T]) int {
		if a.self != b.self {
			if a.self {
				return -1
			}
			return 1
		}
		return a.since.Compare(b.since)
	})
	clear(l.list[MaxTogether:])
	l.list = l.list[:MaxTogether]
	l.from = l.list[MaxTogether-1].since
}

// all returns copies of those to be shown, who came first in front.
func (l *longestOf[T]) all() []T {
	l.trim()
	slices.SortFunc(l.list, func(a, b dated[T]) int { return a.since.Compare(b.since) })
	out := make([]T, len(l.list))
	for i := range l.list {
		out[i] = *l.list[i].caller
	}
	return out
}

func with(names []string, name string) []string {
	if name == "" || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}

// busiest returns the policies, the busiest first.
func (r *recorder) busiest(now time.Time) []Policy {
	var all []Policy
	r.policies.each(now, func(name string, rec *record) {
		if c := rec.counts(r.since, now); c != (Counts{}) {
			all = append(all, Policy{name, c, rec.waits(r.since, now)})
		}
	})
	slices.SortFunc(all, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(b.Counts.callers(), a.Counts.callers()), strings.Compare(a.Name, b.Name))
	})
	return all[:min(len(all), MaxPolicies)]
}

func (c *Counts) callers() int64 { return c.Taken + c.Refused + c.TimedOut }
