package watch

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
)

// usage is what one engine says of the present use of a key.
type usage struct {
	holders          []Holder
	waiters          []Waiter
	holding, waiting int
}

// usageOf returns how the manager of this engine uses a key.
func usageOf(k *manager.Key, self *observe.Origin) usage {
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
		to := Waiter{Identity: self.Identity, Instance: instance, Self: true, Policy: w.Terms.Name, Mode: w.Terms.Mode, Since: w.Since, Wait: w.Terms.Wait, Standby: w.Terms.Standby}
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

// usages are those of all engines.
type usages []usage

// rank notes how an engine uses a key that may be shown.
func rank(all observe.Ranking[usages], name string, u usage) {
	c := all.Of(name)
	c.Used = append(c.Used, u)
	for i := range u.waiters {
		if !u.waiters[i].Standby {
			c.Waits(u.waiters[i].Since)
		}
	}
	for i := range u.holders {
		c.Holds(u.holders[i].Since)
	}
}

// keyOf makes the view of a key.
func keyOf(rec *observe.Recorder, name string, used usages, now time.Time) Key {
	k := Key{Key: name}
	var holders longestOf[Holder]
	var waiters longestOf[Waiter]
	for _, u := range used {
		for i := range u.holders {
			holders.add(&u.holders[i], u.holders[i].Since, u.holders[i].Self)
		}
		for i := range u.waiters {
			waiters.add(&u.waiters[i], u.waiters[i].Since, u.waiters[i].Self)
		}
		k.Holding, k.Waiting = k.Holding+u.holding, k.Waiting+u.waiting
	}
	k.Holders, k.Waiters = holders.all(), waiters.all()
	rec.Keys.Visit(name, func(r *observe.Record) {
		k.Counts, k.Waits = countsOf(r, rec.Since, now), bucketsOf(r, rec.Since, now)
		for _, e := range r.Latest() {
			k.Events = append(k.Events, Event{
				At: e.At, Kind: Kind(e.Kind), Identity: e.Origin.Identity, Instance: e.Origin.Instance.String(),
				Policy: e.Policy, Token: e.Token, Waited: e.Waited,
			})
		}
		k.Policies = slices.Clone(r.Policies)
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

// policiesOf returns the policies, the busiest first.
func policiesOf(h *observe.Hub, rec *observe.Recorder, o others, now time.Time) []Policy {
	var all []Policy
	own := make(map[string]observe.Settings)
	rec.Policies.Each(now, func(name string, r *observe.Record) { // callers wait for its mutexes
		if c := countsOf(r, rec.Since, now); c != (Counts{}) {
			own[name] = h.SettingsOf(r)
			all = append(all, Policy{Name: name, Counts: c, Waits: bucketsOf(r, rec.Since, now)})
		}
	})
	slices.SortFunc(all, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(b.Counts.callers(), a.Counts.callers()), strings.Compare(a.Name, b.Name))
	})
	all = all[:min(len(all), MaxPolicies)]
	for i := range all {
		all[i].Settings = settingsOf(all[i].Name, own[all[i].Name], o)
	}
	return all
}

// settingsOf returns the settings of a policy: those of this process first, and each that another has instead.
func settingsOf(name string, own observe.Settings, o others) (all []Settings) {
	users := make(map[observe.Settings]int)
	if own != (observe.Settings{}) {
		users[own] = 1
	}
	for _, p := range o {
		if s, told := p.policies[name]; told && !p.gone {
			users[s]++
		}
	}
	for s, n := range users {
		all = append(all, Settings{
			Mode: s.Mode, Limit: s.Limit, Wait: s.Wait, TTL: s.TTL, MaxHold: s.MaxHold, Strict: s.Strict,
			Overridden: s.Overridden.Names(), Self: s == own, Processes: n,
		})
	}
	slices.SortFunc(all, func(a, b Settings) int {
		if a.Self {
			return -1
		}
		if b.Self {
			return 1
		}
		return cmp.Or(cmp.Compare(b.Processes, a.Processes), cmp.Compare(a.Wait, b.Wait), cmp.Compare(a.TTL, b.TTL), cmp.Compare(a.MaxHold, b.MaxHold),
			cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.Limit, b.Limit), cmp.Compare(len(a.Overridden), len(b.Overridden)))
	})
	return all[:min(len(all), MaxSettings)]
}

func (c *Counts) callers() int64 { return c.Taken + c.Refused + c.TimedOut + c.Unavailable }

// countsOf returns the counts of the window that ends at a time and has begun at since.
func countsOf(r *observe.Record, since, now time.Time) Counts {
	d, lately := r.Sum(observe.NumberOf(now))
	n := func(k Kind) int64 { return int64(d.Counts[k]) }
	over := min(observe.RateOf, max(now.Sub(since), time.Second))
	return Counts{
		Taken: n(Taken) + n(HandedOn), HandedOff: n(HandedOn), Released: n(Released),
		Renewed: n(Renewed), Lost: n(Lost), Refused: n(Refused), TimedOut: n(TimedOut), Unavailable: n(Unavailable),
		Rate: float64(lately) / over.Seconds(),
	}
}

// bucketsOf returns the buckets since a time, the oldest first.
func bucketsOf(r *observe.Record, since, now time.Time) (all []Bucket) {
	r.Each(since, now, func(start time.Time, d *observe.Delta) {
		all = append(all, Bucket{start, observe.BucketLength, d.Callers(), d.Total, d.Longest})
	})
	return all
}
