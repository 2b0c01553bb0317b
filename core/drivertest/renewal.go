package drivertest

import (
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var renewalChecks = []check{
	{"RenewalExtends", nil, renewalExtends},
	{"RenewalGivesAHandedOverLeaseItsTTL", nil, renewalAfterAHandOver},
	{"RenewalNeverShortens", nil, renewalNeverShortens},
	{"RenewalNeverCreates", nil, renewalNeverCreates},
	{"RenewalNeverCreatesAfterLossOfData", needs(wiping), renewalNeverCreatesAfterWipe},
	{"RenewalSurvivesALostReply", needs(dropping), renewalSurvivesALostReply},
	{"RenewalOfManyAnswersEach", nil, renewalOfManyAnswersEach},
}

func renewalExtends(f *fixture) {
	p, q := f.process(), f.process()
	var (
		l     *lease
		first time.Time
		r     driver.Renewed
	)
	for request := f.request(f.key, max(time.Second, f.caps.MinTTL)); ; request = f.longer(request) {
		l = p.brief(request)
		first = l.Deadline
		if r = l.renew(f.long()); r.Err == nil {
			break
		}
		if time.Now().Before(first) || f.longest(l.ttl) {
			f.t.Fatalf("renewal of a lease that is held: %v", r.Err)
		}
		f.free(f.key, l.ttl+f.handOver()) // the machine was too slow for it
	}
	short := l.ttl
	if !r.Deadline.After(first) {
		f.t.Errorf("renewal by %v moved the deadline by %v", f.long(), r.Deadline.Sub(first))
	}
	if f.onTheWall(r.Deadline) {
		f.t.Error("the renewed Deadline carries no monotonic reading")
	}
	if r.Contended {
		f.t.Error("Contended, but nobody else waits")
	}
	if st := f.state(f.key); st.Remaining <= short || st.Remaining > f.long()+time.Millisecond || !f.inspected(st.Token, l) {
		f.t.Errorf("after a renewal by %v of token %d, Inspect says %+v", f.long(), l.Token, st)
	}
	// A renewed lease outlives what it was first granted for.
	w := q.enqueue(f.waiting(f.key, f.long()))
	f.eventually(short+Slack, "the first deadline passing", func() bool { return time.Now().After(first.Add(driver.Margin(short) + grace)) })
	w.stillWaits()
	l.holds()
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

// renewalAfterAHandOver is about stores whose waiters have places of a shorter time than their
// leases, and whose grants to waiters are as short: the engine renews such a grant soon.
func renewalAfterAHandOver(f *fixture) {
	p, q := f.process(), f.process()
	holder := p.take(f.key, f.long())
	w := q.queue(f.key)
	holder.drop()
	l := w.granted(f.handOver(), "the waiter's grant after a release")
	sent := time.Now()
	r := l.renew(f.long())
	if r.Err != nil {
		f.t.Fatalf("renewal of a lease that was just handed over: %v", r.Err)
	}
	if least := driver.Deadline(sent, f.long()); r.Deadline.Before(least) {
		f.t.Errorf("a renewal by %v gives a lease that was handed over %v less", f.long(), least.Sub(r.Deadline))
	}
	if st := f.state(f.key); !f.inspected(st.Token, l) || st.Remaining < f.long()/2 || st.Remaining > f.long()+time.Millisecond {
		f.t.Errorf("after a renewal by %v of a lease that was handed over, with token %d, Inspect says %+v", f.long(), l.Token, st)
	}
	l.drop()
}

func renewalNeverShortens(f *fixture) {
	p, q := f.process(), f.process()
	l := p.take(f.key, f.long())
	for ttl := f.short(); ; ttl *= 4 { // the store may not answer in so short a time
		r := l.renew(ttl)
		if r.Err == nil {
			break
		}
		if errors.Is(r.Err, driver.ErrNotHeld) || f.longest(ttl) {
			f.t.Fatalf("renewal of a lease that is held, by %v: %v", ttl, r.Err)
		}
	}
	if st := f.state(f.key); st.Remaining < f.long()/2 {
		f.t.Errorf("renewal by %v shortened a lease of %v to %v", f.short(), f.long(), st.Remaining)
	}
	w := q.enqueue(f.waiting(f.key, f.long()))
	end := time.Now().Add(f.short() + grace)
	f.eventually(f.short()+Slack, "time passing", func() bool { return time.Now().After(end) })
	w.stillWaits()
	if !f.state(f.key).Held {
		f.t.Error("a renewal ended the lease sooner than it was granted for")
	}
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func renewalNeverCreates(f *fixture) {
	p, q := f.process(), f.process()
	released := p.take(f.key, f.long())
	released.drop()
	f.lostAt(released, "released")

	expired := p.takeBriefly()
	f.free(f.key, expired.ttl+f.handOver())
	f.lostAt(expired, "expired")

	overtaken := p.takeBriefly()
	w := q.start(f.patient(), f.waiting(f.key, f.long()))
	next := w.granted(overtaken.ttl+f.handOver(), "the grant after an expiry")
	if err := overtaken.renew(f.long()).Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("renewal of a lease that had expired and gone to another returned %v, not ErrNotHeld", err)
	}
	next.holds()
	next.drop()
	f.lostAt(overtaken, "expired, and since then held by another,")
}

// lostAt renews a lease that is no more, on a free key.
func (f *fixture) lostAt(l *lease, how string) {
	f.t.Helper()
	if err := l.renew(f.long()).Err; !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("renewal of a lease that was %s returned %v, not ErrNotHeld", how, err)
	}
	if f.state(l.Key).Held {
		f.t.Fatalf("renewal created a lease that was %s", how)
	}
}

func renewalNeverCreatesAfterWipe(f *fixture) {
	p := f.process()
	l := p.take(f.key, f.long())
	f.h.Wipe()
	r := l.renew(f.long())
	if r.Err != nil && !errors.Is(r.Err, driver.ErrNotHeld) { // the connection was closed
		r = l.renew(f.long())
	}
	if !errors.Is(r.Err, driver.ErrNotHeld) {
		f.t.Errorf("renewal of a lease that the store has forgotten returned %v, not ErrNotHeld", r.Err)
	}
	if f.state(f.key).Held {
		f.t.Fatal("renewal created a lease that the store had forgotten")
	}
	if f.caps.Tokens != driver.NoTokens {
		if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
			f.t.Errorf("release of a lease that the store has forgotten returned %v, not ErrNotHeld", err)
		}
	}
	p.take(f.key, f.long()).drop()
}

func renewalSurvivesALostReply(f *fixture) {
	p := f.process()
	l := p.take(f.key, f.long())
	dropped := f.dropReply(OpRenew)
	r := l.renew(2 * f.long())
	dropped()
	if errors.Is(r.Err, driver.ErrNotHeld) {
		f.t.Fatal("a renewal whose first reply was lost reported its lease as not held")
	}
	l.holds()
	l.drop()
}

func renewalOfManyAnswersEach(f *fixture) {
	p := f.process()
	if out := p.renew(); len(out) != 0 {
		f.t.Errorf("renewal of nothing returned %d results", len(out))
	}
	one, gone, two := p.take(f.key+":one", f.long()), p.take(f.key+":gone", f.long()), p.take(f.key+":two", f.long())
	gone.drop()
	out := p.renew(one.renewal(3*f.long()), gone.renewal(3*f.long()), two.renewal(2*f.long()))
	if out[0].Err != nil || out[2].Err != nil {
		f.t.Errorf("renewal of two leases that are held, beside one that is not, returned %v and %v", out[0].Err, out[2].Err)
	}
	if !errors.Is(out[1].Err, driver.ErrNotHeld) {
		f.t.Errorf("renewal of a lease that is not held, between two that are, returned %v, not ErrNotHeld", out[1].Err)
	}
	if out[0].Err == nil && out[2].Err == nil && !out[0].Deadline.After(out[2].Deadline.Add(f.long()/2)) {
		f.t.Error("the deadlines of a renewal of many are not each for its own TTL")
	}
	for l, ttl := range map[*lease]time.Duration{one: 3 * f.long(), two: 2 * f.long()} {
		if st := f.state(l.Key); st.Remaining <= ttl-f.long()/2 || st.Remaining > ttl+time.Millisecond {
			f.t.Errorf("a lease renewed by %v has %v left", ttl, st.Remaining)
		}
		l.drop()
	}
}
