package watch

import (
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
)

const (
	maxKey   = 4 << 10 // bytes of a key
	maxToken = 1<<63 - 1
)

// report is what another engine tells of itself.
type report observe.Report[usage]

// parseReport reads a report that was sent at about now. All that is in it may be made up.
func parseReport(from observe.Instance, rest []byte, now time.Time) (*report, error) {
	r := observe.Reader{Rest: rest}
	p := &report{Identity: r.Text(driver.MaxIdentity), Started: now.Add(-r.Duration()), Version: strings.ToValidUTF8(r.Text(observe.MaxVersion), "\ufffd"), Number: r.Number()}
	if !driver.ValidIdentity(p.Identity) {
		p.Identity = ""
	}
	p.Dropped, p.Held, p.Waiting = r.Int(), r.Int(), r.Int()
	p.Policies = make([]observe.Told, r.Count(2*observe.MaxNames+MaxCallers*4))
	for i := range p.Policies {
		p.Policies[i].Name = strings.ToValidUTF8(r.Text(observe.MaxName), "\ufffd")
		p.Policies[i].Delta = r.Delta()
		p.Policies[i].Settings = r.Settings()
	}
	p.Keys = make([]observe.ToldKey[usage], r.Count(MaxKeys))
	origin := observe.Origin{Identity: p.Identity, Instance: from}
	for i := range p.Keys {
		p.key(&r, &p.Keys[i], origin, now)
	}
	if len(r.Rest) > 0 {
		r.Fail()
	}
	return p, r.Err
}

// policy reads a number that stands for a policy's name.
func (p *report) policy(r *observe.Reader) string {
	if i := r.AtMost(uint64(len(p.Policies))); i > 0 {
		return p.Policies[i-1].Name
	}
	return ""
}

func (p *report) key(r *observe.Reader, k *observe.ToldKey[usage], from observe.Origin, now time.Time) {
	instance := from.Instance.String()
	u := &k.Use
	k.Name = r.Text(maxKey)
	k.Delta = r.Delta()
	u.holding, u.waiting = r.Int(), r.Int()
	for range r.Count(observe.MaxPolicies) {
		k.Policies = with(k.Policies, p.policy(r))
	}
	n := r.Count(MaxCallers)
	u.holders = slices.Grow(u.holders, n)
	for range n {
		set := r.Number()
		h := Holder{Identity: from.Identity, Instance: instance, Idle: set&1 != 0, Contended: set&2 != 0, Mode: observe.ModeOf(set >> 3)}
		h.Policy, h.Limit, h.Token = p.policy(r), r.Int(), int64(r.AtMost(maxToken))
		h.Since, h.Until = now.Add(-r.Duration()), now.Add(r.Duration())
		h.Renewals, h.HandOffs = r.Int(), r.Int()
		if set&4 != 0 {
			copy(h.TraceID[:], r.Take(len(h.TraceID)))
			copy(h.SpanID[:], r.Take(len(h.SpanID)))
		}
		u.holders = append(u.holders, h)
	}
	n = r.Count(MaxCallers)
	u.waiters = slices.Grow(u.waiters, n)
	for range n {
		set := r.Number()
		w := Waiter{Identity: from.Identity, Instance: instance, Mode: observe.ModeOf(set >> 3), Policy: p.policy(r)}
		w.Since = now.Add(-r.Duration())
		w.Wait = observe.WaitOf(r.Duration())
		w.Standby = set&2 != 0
		if set&1 != 0 {
			copy(w.TraceID[:], r.Take(len(w.TraceID)))
			copy(w.SpanID[:], r.Take(len(w.SpanID)))
		}
		u.waiters = append(u.waiters, w)
	}
	for range r.Count(observe.ReportEvents) {
		e := observe.Event{Kind: manager.Kind(r.AtMost(uint64(observe.Kinds - 1))), Policy: p.policy(r), Token: int64(r.AtMost(maxToken))}
		e.At = now.Add(-r.Duration())
		e.Waited = r.Duration()
		k.Events = append(k.Events, e)
	}
}
