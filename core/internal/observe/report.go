package observe

import (
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
)

// Messages begin with the version, so that releases with another one do not read them, and with
// what they are.
const (
	versionMark = "lw1"

	kindAsk    = 'a' // engines are to report for a time
	kindReport = 'r'
	kindClosed = 'c' // the engine is closed
)

const (
	maxName      = 256     // bytes of a policy's name; longer ones are cut
	maxNames     = 256     // policies of a report that have changed
	maxKey       = 4 << 10 // bytes of a key
	reportEvents = 8       // of a key
	headRoom     = 256     // bytes of a report for what is not of a policy or key
	maxToken     = 1<<63 - 1
)

// ask asks engines to report.
type ask struct {
	from  Instance
	valid time.Duration // for how long
	now   bool          // at once, since the asker knows nothing yet
}

func (a ask) encode() []byte {
	w := begin(kindAsk, a.from)
	w.duration(a.valid)
	w.number(flags(a.now))
	return w.b
}

func begin(kind byte, from Instance) *writer {
	w := new(writer)
	w.bytes([]byte(versionMark))
	w.bytes([]byte{kind})
	w.bytes(from[:])
	return w
}

func flags(set ...bool) (n uint64) {
	for i, s := range set {
		if s {
			n |= 1 << i
		}
	}
	return n
}

// opened returns what kind of message it is, who sent it and the rest; ok is false if it is none.
func opened(message []byte) (kind byte, from Instance, rest []byte, ok bool) {
	const head = len(versionMark) + 1 + len(Instance{})
	if len(message) < head || len(message) > driver.MaxGossip || !strings.HasPrefix(string(message[:len(versionMark)]), versionMark) {
		return 0, from, nil, false
	}
	copy(from[:], message[len(versionMark)+1:])
	return message[len(versionMark)], from, message[head:], true
}

func parseAsk(rest []byte) (a ask, err error) {
	r := reader{b: rest}
	a.valid = r.duration()
	a.now = r.number()&1 != 0
	return a, r.err
}

// report is what one engine tells of itself.
type report struct {
	identity string
	number   uint64 // of the report, from 1
	dropped  int    // keys that it does not have
	held     int
	waiting  int
	policies []told // since the report before
	keys     []toldKey
}

// told is what happened under a name since the report before.
type told struct {
	name string
	delta
}

type toldKey struct {
	told
	usage
	policies []string
	events   []Event // without origin
}

func (w *writer) delta(d *delta) {
	var mask uint64
	for i, n := range d.counts {
		if n > 0 {
			mask |= 1 << i
		}
	}
	w.number(mask)
	for _, n := range d.counts {
		if n > 0 {
			w.number(uint64(n))
		}
	}
	if mask != 0 {
		w.duration(d.total)
		w.duration(d.longest)
	}
}

func (r *reader) delta() (d delta) {
	mask := r.atMost(1<<kinds - 1)
	for i := range d.counts {
		if mask&(1<<i) != 0 {
			d.counts[i] = uint32(r.atMost(1<<32 - 1))
		}
	}
	if mask != 0 {
		d.total, d.longest = r.duration(), r.duration()
	}
	return d
}

// names are the policies of a report, in their order there.
type names struct {
	of  map[string]int
	all writer // what the report has of them
}

// number returns the number of a policy in the report, from 1.
func (n *names) number(policy string, d *delta) int {
	policy = policy[:min(len(policy), maxName)]
	i, ok := n.of[policy]
	if !ok {
		i = len(n.of) + 1
		n.of[policy] = i
		n.all.text(policy)
		n.all.delta(d)
	}
	return i
}

// encode returns the message, and how many of the keys it has: those that no longer fit are left
// out. now is the time that ages count from.
func (p *report) encode(from Instance, now time.Time) (message []byte, fit int) {
	n := names{of: make(map[string]int)}
	for i := range p.policies[:min(len(p.policies), maxNames)] {
		n.number(p.policies[i].name, &p.policies[i].delta)
	}
	var keys writer
	for fit < len(p.keys) && fit < MaxKeys {
		before := len(keys.b)
		keys.key(&p.keys[fit], &n, now)
		if len(n.all.b)+len(keys.b) > driver.MaxGossip-headRoom || len(n.of) > 2*maxNames {
			keys.b = keys.b[:before]
			break
		}
		fit++
	}
	w := begin(kindReport, from)
	w.text(p.identity)
	w.number(p.number)
	w.number(uint64(p.dropped + len(p.keys) - fit))
	w.number(uint64(p.held))
	w.number(uint64(p.waiting))
	w.number(uint64(len(n.of)))
	w.bytes(n.all.b)
	w.number(uint64(fit))
	w.bytes(keys.b)
	return w.b, fit
}

func (w *writer) key(k *toldKey, n *names, now time.Time) {
	name := func(policy string) { w.number(uint64(n.number(policy, new(delta)))) }
	w.text(k.name)
	w.delta(&k.delta)
	w.number(uint64(k.holding))
	w.number(uint64(k.waiting))
	w.number(uint64(len(k.policies)))
	for _, p := range k.policies {
		name(p)
	}
	w.number(uint64(len(k.holders)))
	for i := range k.holders {
		h := &k.holders[i]
		w.number(uint64(h.Mode)<<3 | flags(h.Idle, h.Contended, h.TraceID.IsValid()))
		name(h.Policy)
		w.number(uint64(h.Limit))
		w.number(uint64(h.Token))
		w.duration(now.Sub(h.Since))
		w.duration(h.Until.Sub(now))
		w.number(uint64(h.Renewals))
		w.number(uint64(h.HandOffs))
		if h.TraceID.IsValid() {
			w.bytes(h.TraceID[:])
			w.bytes(h.SpanID[:])
		}
	}
	w.number(uint64(len(k.waiters)))
	for i := range k.waiters {
		wt := &k.waiters[i]
		w.number(uint64(wt.Mode)<<3 | flags(wt.TraceID.IsValid()))
		name(wt.Policy)
		w.duration(now.Sub(wt.Since))
		if wt.TraceID.IsValid() {
			w.bytes(wt.TraceID[:])
			w.bytes(wt.SpanID[:])
		}
	}
	w.number(uint64(len(k.events)))
	for i := range k.events {
		e := &k.events[i]
		w.number(uint64(e.Kind))
		name(e.Policy)
		w.number(uint64(e.Token))
		w.duration(now.Sub(e.At))
		w.duration(e.Waited)
	}
}

// parseReport reads a report that was sent at about now. All that is in it may be made up.
func parseReport(from Instance, rest []byte, now time.Time) (*report, error) {
	r := reader{b: rest}
	p := &report{identity: r.text(driver.MaxIdentity), number: r.number()}
	if !driver.ValidIdentity(p.identity) {
		p.identity = ""
	}
	p.dropped, p.held, p.waiting = r.int(), r.int(), r.int()
	p.policies = make([]told, r.count(2*maxNames+MaxCallers*4))
	for i := range p.policies {
		p.policies[i].name = strings.ToValidUTF8(r.text(maxName), "\ufffd")
		p.policies[i].delta = r.delta()
	}
	p.keys = make([]toldKey, r.count(MaxKeys))
	origin := Origin{p.identity, from}
	for i := range p.keys {
		r.key(&p.keys[i], p, origin, now)
	}
	if len(r.b) > 0 {
		r.fail()
	}
	return p, r.err
}

// policy reads a number that stands for a policy's name.
func (r *reader) policy(p *report) string {
	if i := r.atMost(uint64(len(p.policies))); i > 0 {
		return p.policies[i-1].name
	}
	return ""
}

func (r *reader) key(k *toldKey, p *report, from Origin, now time.Time) {
	instance := from.Instance.String()
	k.name = r.text(maxKey)
	k.delta = r.delta()
	k.holding, k.waiting = r.int(), r.int()
	for range r.count(maxPolicies) {
		k.policies = with(k.policies, r.policy(p))
	}
	n := r.count(MaxCallers)
	k.holders = slices.Grow(k.holders, n)
	for range n {
		set := r.number()
		h := Holder{Identity: from.Identity, Instance: instance, Idle: set&1 != 0, Contended: set&2 != 0, Mode: modeOf(set >> 3)}
		h.Policy, h.Limit, h.Token = r.policy(p), r.int(), int64(r.atMost(maxToken))
		h.Since, h.Until = now.Add(-r.duration()), now.Add(r.duration())
		h.Renewals, h.HandOffs = r.int(), r.int()
		if set&4 != 0 {
			copy(h.TraceID[:], r.take(len(h.TraceID)))
			copy(h.SpanID[:], r.take(len(h.SpanID)))
		}
		k.holders = append(k.holders, h)
	}
	n = r.count(MaxCallers)
	k.waiters = slices.Grow(k.waiters, n)
	for range n {
		set := r.number()
		w := Waiter{Identity: from.Identity, Instance: instance, Mode: modeOf(set >> 3), Policy: r.policy(p)}
		w.Since = now.Add(-r.duration())
		if set&1 != 0 {
			copy(w.TraceID[:], r.take(len(w.TraceID)))
			copy(w.SpanID[:], r.take(len(w.SpanID)))
		}
		k.waiters = append(k.waiters, w)
	}
	for range r.count(reportEvents) {
		e := Event{Kind: queue.Kind(r.atMost(uint64(kinds - 1))), Policy: r.policy(p), Token: int64(r.atMost(maxToken))}
		e.At = now.Add(-r.duration())
		e.Waited = r.duration()
		k.events = append(k.events, e)
	}
}

// modeOf is a mode that somebody told of.
func modeOf(n uint64) driver.Mode {
	if n > uint64(driver.Semaphore) {
		return driver.Exclusive
	}
	return driver.Mode(n)
}
