package watch

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/observe"
)

const (
	// goneAfter is how long an engine is silent before it counts as gone.
	goneAfter = 10 * time.Second
	// forgottenAfter is how long an engine is shown after it was last heard.
	forgottenAfter = 5 * time.Minute
)

// other is an engine that has reported. It never changes: each report makes another one.
type other struct {
	*observe.Origin
	shown    Process // but for what Origin says
	gone     bool
	number   uint64 // of the report
	keys     map[string]usage
	policies map[string]observe.Settings // what it has told of late
}

// others are the engines that have reported. Who changes them holds the hub's mutex.
type others map[observe.Instance]*other

// Reported handles a message. The hub's mutex is not held.
func (all *watchers) Reported(message []byte) {
	kind, from, rest, ok := observe.Open(message)
	now := time.Now()
	switch {
	case !ok:
	case kind == observe.KindReport:
		if p, err := parseReport(from, rest, now); err == nil {
			all.take(from, p, now)
		}
	case kind == observe.KindClosed:
		all.hub.Lock()
		defer all.hub.Unlock()
		if was := all.others[from]; was != nil && !was.shown.Closed { // until it reports again: anybody may say goodbye for it
			all.others[from] = &other{Origin: was.Origin, shown: Process{Heard: now, Closed: true}, gone: true, number: was.number}
			all.note()
		}
	}
}

// take notes a report, unless it is an old one or nobody watches.
func (all *watchers) take(from observe.Instance, p *report, now time.Time) {
	to := &other{number: p.Number, keys: make(map[string]usage, len(p.Keys))}
	to.shown = Process{Heard: now, Started: p.Started, Version: p.Version, Held: p.Held, Waiting: p.Waiting, Dropped: p.Dropped}
	for i := range p.Keys {
		if u := p.Keys[i].Use; u.holding+u.waiting > 0 {
			to.keys[p.Keys[i].Name] = u
		}
	}
	all.hub.Lock()
	rec, was := all.hub.Rec, all.others[from]
	if rec == nil || !all.Watched() || from == all.hub.Self.Instance || was != nil && was.follows(p.Number) {
		all.hub.Unlock()
		return
	}
	if was == nil && !all.others.room() {
		all.crowded = now
		all.note()
		all.hub.Unlock()
		return
	}
	to.policies = was.settings(p)
	if to.Origin = (&observe.Origin{Identity: p.Identity, Instance: from}); was != nil && *was.Origin == *to.Origin {
		to.Origin = was.Origin
	}
	if all.others == nil {
		all.others = make(others)
	}
	all.others[from] = to
	all.note()
	all.hub.Unlock()

	for i := range p.Keys {
		k := &p.Keys[i]
		rec.Keys.With(k.Name, now, func(r *observe.Record) {
			r.Add(observe.NumberOf(now), k.Delta)
			for _, policy := range k.Policies {
				r.Remember(policy)
			}
			for _, e := range k.Events {
				e.Origin = to.Origin
				r.Keep(e)
			}
		})
	}
	for _, told := range p.Policies {
		if told.Delta != (observe.Delta{}) {
			rec.Policies.With(told.Name, now, func(r *observe.Record) { r.Add(observe.NumberOf(now), told.Delta) })
		}
	}
}

// settings are those of policies as an engine tells, with those of its reports before. o may be nil.
func (o *other) settings(p *report) map[string]observe.Settings {
	all := make(map[string]observe.Settings)
	if o != nil && len(o.policies) < MaxPolicies {
		maps.Copy(all, o.policies)
	}
	for _, told := range p.Policies {
		if told.Settings.TTL > 0 {
			all[told.Name] = told.Settings
		}
	}
	return all
}

// follows reports whether a report is one of the few before o, or o itself, that came late or twice.
// One that is further back is no such report: somebody else has told a larger number in the name
// of the engine, which is not believed against the engine itself for long.
func (o *other) follows(number uint64) bool {
	return number <= o.number && o.number-number < lateReports
}

// lateReports is how many reports may overtake one: each is sent after the one before was, or
// after the store did not take that in time.
const lateReports = 4

// room reports whether one more engine can be noted. If need be it forgets one that is gone.
func (o others) room() bool {
	if len(o) < MaxProcesses-1 {
		return true
	}
	for i, p := range o {
		if p.gone {
			delete(o, i)
			return true
		}
	}
	return false
}

// age notes who has fallen silent, and reports whether anything has changed.
func (o others) age(now time.Time) (changed bool) {
	for i, p := range o {
		silent := now.Sub(p.shown.Heard)
		switch {
		case silent > forgottenAfter:
			delete(o, i)
		case !p.gone && silent > goneAfter:
			gone := *p
			gone.gone = true
			o[i] = &gone
		default:
			continue
		}
		changed = true
	}
	return changed
}

// processes returns the engines as they are shown.
func (o others) processes() []Process {
	all := make([]Process, 0, len(o))
	for _, p := range o {
		to := p.shown
		to.Identity, to.Instance = p.Identity, p.Instance.String()
		if p.gone {
			to.Gone, to.Held, to.Waiting = to.Heard, 0, 0
		}
		all = append(all, to)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return cmp.Or(strings.Compare(a.Identity, b.Identity), strings.Compare(a.Instance, b.Instance))
	})
	return all
}

// use calls f with how each engine uses each key. Of one that is gone the store may still have
// leases, until they expire, and no waiters.
func (o others) use(now time.Time, f func(key string, u usage)) {
	for _, p := range o {
		for key := range p.keys {
			if u := p.at(key, now); u.holding+u.waiting > 0 {
				f(key, u)
			}
		}
	}
}

// at is how the engine uses a key.
func (o *other) at(key string, now time.Time) usage {
	if o.gone {
		return o.keys[key].left(now)
	}
	return o.keys[key]
}

// left is what is left of the use of a key by an engine that is gone.
func (u usage) left(now time.Time) (rest usage) {
	for _, h := range u.holders {
		if h.Until.After(now) {
			rest.holders = append(rest.holders, h)
		}
	}
	rest.holding = len(rest.holders)
	return rest
}
