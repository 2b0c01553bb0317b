package observe

import (
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
)

// Messages begin with the version, so that releases with another one do not read them, and with
// what they are.
const (
	versionMark = "lw1"

	kindAsk    = 'a' // engines are to report for a time
	KindReport = 'r'
	KindClosed = 'c' // the engine is closed
)

// Bounds of a report.
const (
	MaxVersion   = 64  // bytes of what a program is called
	MaxName      = 256 // bytes of a policy's name; longer ones are cut
	MaxNames     = 256 // policies of a report that have changed
	ReportEvents = 8   // of a key
	headRoom     = 256 // bytes of a report for what is not of a policy or key
)

// ask asks engines to report.
type ask struct {
	from  Instance
	valid time.Duration // for how long
	now   bool          // at once, since the asker knows nothing yet
}

func (a ask) encode() []byte {
	w := &writer{Message(kindAsk, a.from)}
	w.duration(a.valid)
	w.number(flags(a.now))
	return w.b
}

// Message is the beginning of a message, or one that has nothing more.
func Message(kind byte, from Instance) []byte {
	return append(append([]byte(versionMark), kind), from[:]...)
}

func flags(set ...bool) (n uint64) {
	for i, s := range set {
		if s {
			n |= 1 << i
		}
	}
	return n
}

// Open returns what kind of message it is, who sent it and the rest; ok is false if it is none.
func Open(message []byte) (kind byte, from Instance, rest []byte, ok bool) {
	const head = len(versionMark) + 1 + len(Instance{})
	if len(message) < head || len(message) > driver.MaxGossip || !strings.HasPrefix(string(message[:len(versionMark)]), versionMark) {
		return 0, from, nil, false
	}
	copy(from[:], message[len(versionMark)+1:])
	return message[len(versionMark)], from, message[head:], true
}

func parseAsk(rest []byte) (a ask, err error) {
	r := Reader{Rest: rest}
	a.valid = r.Duration()
	a.now = r.Number()&1 != 0
	return a, r.Err
}

// Report is what one engine tells of itself. Use is how it uses a key: what its manager says to who
// writes the report, and what is shown to who reads it.
type Report[Use any] struct {
	Identity string
	Started  time.Time // of the process
	Version  string    // of the program, see [Version]
	Number   uint64    // of the report, from 1
	Dropped  int       // keys that it does not have
	Held     int
	Waiting  int
	Policies []Told // since the report before
	Keys     []ToldKey[Use]
}

// Told is what happened under a name since the report before.
type Told struct {
	Name string
	Delta
	Settings Settings // of a policy
}

// ToldKey is what a report says of a key.
type ToldKey[Use any] struct {
	Told
	Use      Use
	Policies []string
	Events   []Event // without origin
}

func (w *writer) delta(d *Delta) {
	var mask uint64
	for i, n := range d.Counts {
		if n > 0 {
			mask |= 1 << i
		}
	}
	w.number(mask)
	for _, n := range d.Counts {
		if n > 0 {
			w.number(uint64(n))
		}
	}
	if mask != 0 {
		w.duration(d.Total)
		w.duration(d.Longest)
	}
}

// Delta reads what a report says that happened.
func (r *Reader) Delta() (d Delta) {
	mask := r.AtMost(1<<Kinds - 1)
	for i := range d.Counts {
		if mask&(1<<i) != 0 {
			d.Counts[i] = uint32(r.AtMost(1<<32 - 1))
		}
	}
	if mask != 0 {
		d.Total, d.Longest = r.Duration(), r.Duration()
	}
	return d
}

// names are the policies of a report, in their order there.
type names struct {
	of  map[string]int
	all writer // what the report has of them
}

// number returns the number of a policy in the report, from 1.
func (n *names) number(policy string, d *Delta, s *Settings) int {
	policy = policy[:min(len(policy), MaxName)]
	i, ok := n.of[policy]
	if !ok {
		i = len(n.of) + 1
		n.of[policy] = i
		n.all.text(policy)
		n.all.delta(d)
		n.all.settings(s)
	}
	return i
}

// Encode returns the message of a report, and how many of the keys it has: those that no longer fit are left
// out. now is the time that ages count from.
func Encode(p *Report[manager.Key], from Instance, now time.Time) (message []byte, fit int) {
	n := names{of: make(map[string]int)}
	for i := range p.Policies[:min(len(p.Policies), MaxNames)] {
		n.number(p.Policies[i].Name, &p.Policies[i].Delta, &p.Policies[i].Settings)
	}
	var keys writer
	for fit < len(p.Keys) && fit < MaxKeys {
		before := len(keys.b)
		keys.key(&p.Keys[fit], &n, now)
		if len(n.all.b)+len(keys.b) > driver.MaxGossip-headRoom || len(n.of) > 2*MaxNames {
			keys.b = keys.b[:before]
			break
		}
		fit++
	}
	w := &writer{Message(KindReport, from)}
	w.text(p.Identity)
	w.duration(now.Sub(p.Started))
	w.text(p.Version)
	w.number(p.Number)
	w.number(uint64(p.Dropped + len(p.Keys) - fit))
	w.number(uint64(p.Held))
	w.number(uint64(p.Waiting))
	w.number(uint64(len(n.of)))
	w.bytes(n.all.b)
	w.number(uint64(fit))
	w.bytes(keys.b)
	return w.b, fit
}

func (w *writer) key(k *ToldKey[manager.Key], n *names, now time.Time) {
	name := func(policy string) { w.number(uint64(n.number(policy, new(Delta), new(Settings)))) }
	w.text(k.Name)
	w.delta(&k.Delta)
	w.number(uint64(k.Use.Holding))
	w.number(uint64(k.Use.Waiting))
	w.number(uint64(len(k.Policies)))
	for _, p := range k.Policies {
		name(p)
	}
	w.number(uint64(len(k.Use.Holders)))
	for i := range k.Use.Holders {
		h := &k.Use.Holders[i]
		w.number(uint64(h.Mode)<<3 | flags(h.Terms == nil, h.Contended, h.Trace != nil))
		if h.Terms != nil {
			name(h.Terms.Name)
		} else {
			name("")
		}
		w.number(uint64(h.Limit))
		w.number(uint64(h.Token))
		w.duration(now.Sub(h.Since))
		w.duration(h.Deadline.Sub(now))
		w.number(uint64(h.Renewals))
		w.number(uint64(h.HandOffs))
		w.trace(h.Trace)
	}
	w.number(uint64(len(k.Use.Waiters)))
	for i := range k.Use.Waiters {
		wt := &k.Use.Waiters[i]
		w.number(uint64(wt.Terms.Mode)<<3 | flags(wt.Trace != nil, wt.Terms.Standby))
		name(wt.Terms.Name)
		w.duration(now.Sub(wt.Since))
		w.duration(wt.Terms.Wait)
		w.trace(wt.Trace)
	}
	w.number(uint64(len(k.Events)))
	for i := range k.Events {
		e := &k.Events[i]
		w.number(uint64(e.Kind))
		name(e.Policy)
		w.number(uint64(e.Token))
		w.duration(now.Sub(e.At))
		w.duration(e.Waited)
	}
}

func (w *writer) trace(t *driver.Trace) {
	if t != nil {
		w.bytes(t.TraceID[:])
		w.bytes(t.SpanID[:])
	}
}
