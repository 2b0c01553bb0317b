package drivertest

import (
	"errors"
	"reflect"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var basicChecks = []check{
	{"CapabilitiesAreSaneAndConstant", nil, capabilitiesAreSane},
	{"PingSucceeds", nil, pingSucceeds},
	{"GrantIsComplete", nil, grantIsComplete},
	{"InspectChangesNothing", nil, inspectChangesNothing},
	{"HeldKeyIsRefusedAtOnce", nil, heldKeyIsRefused},
	{"GrantOutlivesItsContext", nil, grantOutlivesItsContext},
}

func capabilitiesAreSane(f *fixture) {
	c := f.caps
	if c.Name == "" {
		f.t.Error("Name is empty; telemetry and errors need one")
	}
	if len(c.Modes) == 0 {
		f.t.Error("Modes is empty; a driver grants at least one")
	}
	seen := make(map[driver.Mode]bool)
	for _, m := range c.Modes {
		if m > driver.Semaphore {
			f.t.Errorf("Modes holds %d, which is no mode", m)
		}
		if seen[m] {
			f.t.Errorf("Modes holds %v twice", m)
		}
		seen[m] = true
	}
	if c.MinTTL <= 0 {
		f.t.Errorf("MinTTL is %v; a TTL of nothing is never possible", c.MinTTL)
	}
	if driver.Margin(c.MinTTL) >= c.MinTTL {
		f.t.Errorf("MinTTL is %v, of which a margin of %v leaves nothing", c.MinTTL, driver.Margin(c.MinTTL))
	}
	if c.Tokens > driver.DurableTokens {
		f.t.Errorf("Tokens is %d, which is no strength", c.Tokens)
	}
	if c.Wake <= 0 {
		f.t.Errorf("Wake is %v; a wake-up may be lost, so a bound is needed", c.Wake)
	}
	if again := f.h.Driver.Capabilities(); !reflect.DeepEqual(c, again) {
		f.t.Errorf("Capabilities changed from %+v to %+v", c, again)
	}
	p := f.process()
	p.take(f.key, f.long()).drop()
	if again := f.h.Driver.Capabilities(); !reflect.DeepEqual(c, again) {
		f.t.Errorf("Capabilities changed from %+v to %+v", c, again)
	}
}

func pingSucceeds(f *fixture) {
	if err := f.process().ping(); err != nil {
		f.t.Errorf("ping of a store that answers: %v", err)
	}
}

func grantIsComplete(f *fixture) {
	p := f.process()
	if st := f.state(f.key); !same(st, driver.State{}) {
		f.t.Errorf("a key that was never used is %+v, not the zero State", st)
	}
	r := f.request(f.key, f.long())
	l, err := p.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("acquire of a free key: %v", err)
	}
	if l.ID != r.ID {
		f.t.Error("the grant does not carry the ID of its request")
	}
	if f.caps.Tokens == driver.NoTokens && l.Token != 0 {
		f.t.Errorf("token %d from a driver that says NoTokens", l.Token)
	}
	if f.caps.Tokens != driver.NoTokens && (l.Token < 1 || l.Token > 1<<53-1) {
		f.t.Errorf("token %d is outside 1 to 2^53-1", l.Token)
	}
	if l.Contended {
		f.t.Error("Contended, but nobody else waits")
	}
	if f.onTheWall(l.Deadline) {
		f.t.Error("Deadline carries no monotonic reading, so a clock that is set back prolongs the lease")
	}
	st := f.state(f.key)
	if !st.Held || st.Waiting != 0 || !f.inspected(st.Token, l) || st.Remaining <= 0 || st.Remaining > f.long()+time.Millisecond {
		f.t.Errorf("after a grant of %v with token %d, Inspect says %+v", f.long(), l.Token, st)
	}
	l.drop()
	if st := f.state(f.key); st.Held || st.Remaining != 0 {
		f.t.Errorf("after the release, Inspect says %+v", st)
	}
}

func inspectChangesNothing(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	for range 3 {
		if st := f.state(f.key); !st.Held || st.Waiting != f.places(1) {
			f.t.Fatalf("with a holder and a waiter, Inspect says %+v", st)
		}
	}
	w.stillWaits()
	l.holds()
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func heldKeyIsRefused(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	for _, p := range []*process{a, b} {
		start := time.Now()
		_, err := p.acquire(f.prompt(), f.request(f.key, f.long()))
		if took := time.Since(start); took > f.allow(Slack) {
			f.t.Errorf("a request that would not wait took %v", took)
		}
		var held *driver.HeldError
		if !errors.As(err, &held) {
			f.t.Fatalf("a request for a held key that would not wait returned %v, not a *HeldError", err)
		}
		if held.RetryAfter < 0 || held.RetryAfter > f.long()+time.Millisecond {
			f.t.Errorf("RetryAfter is %v, but the lease lasts %v at most", held.RetryAfter, f.long())
		}
	}
	if st := f.state(f.key); st.Waiting != 0 {
		f.t.Errorf("requests that would not wait left %d places in the queue", st.Waiting)
	}
	l.holds()
	l.drop()
	b.take(f.key, f.long()).drop()
}

func grantOutlivesItsContext(f *fixture) {
	a, b := f.process(), f.process()
	for _, wait := range []bool{false, true} {
		r := f.request(f.key, f.long())
		r.Wait = wait
		w := a.start(f.patient(), r)
		l := w.granted(patience, "acquire of a free key")
		w.cancel()
		for cancelled := time.Now(); time.Since(cancelled) < driver.Promptness; yield() { // it would be seen to in the background
			if _, err := b.try(f.key, f.long()); err == nil {
				f.t.Fatal("a lease ended with the context of its acquisition")
			}
		}
		l.holds()
		l.drop()
	}
}

var tokenChecks = []check{
	{"TokensRise", needs(issuingTokens), tokensRise},
	{"TokensAreIssuedAtGrant", needs(queueing, issuingTokens), tokensAreIssuedAtGrant},
	{"TokensAreIssuedAtGrantThoughRepliesAreLate", needs(issuingTokens, delaying, aWayPast), tokensAreIssuedAtGrantThoughLate},
	{"TokensRiseAcrossRestart", needs(issuingTokens, restarting), tokensRiseAcrossRestart},
	{"TokensRiseAcrossLossOfData", needs(issuingTokens, wiping), tokensRiseAcrossWipe},
}

func isHeld(err error) bool {
	var held *driver.HeldError
	return errors.As(err, &held)
}

// rises fails the check unless the lease's token is larger than every earlier
// one, and returns it.
func (l *lease) rises(last int64, after string) int64 {
	l.p.f.t.Helper()
	if l.Token <= last {
		l.p.f.t.Fatalf("token %d was granted after token %d, %s", l.Token, last, after)
	}
	return l.Token
}

func tokensRise(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 3 {
		l := a.take(f.key, f.long())
		last = l.rises(last, "after a release")
		w := b.queue(f.key)
		l.drop()
		l = w.granted(f.handOver(), "the waiter's grant after a release")
		last = l.rises(last, "by hand-over to a waiter")
		if r := l.renew(f.long()); r.Err != nil {
			f.t.Fatalf("renewal of a lease that is held: %v", r.Err)
		}
		l.drop()
	}
	l := a.takeBriefly()
	last = l.rises(last, "after a release")
	f.free(f.key, l.ttl+f.handOver())
	l = b.take(f.key, f.long())
	l.rises(last, "after an expiry")
	l.drop()
}

func tokensAreIssuedAtGrant(f *fixture) {
	a := f.process()
	l := a.take(f.key, f.long())
	first, second := f.process().queue(f.key), f.process().queue(f.key)
	for range 2 {
		if st := f.state(f.key); !f.inspected(st.Token, l) {
			f.t.Fatalf("the holder has token %d; with waiters in the queue the latest grant has token %d", l.Token, st.Token)
		}
		l.holds()
	}
	// The first leaves, the holder takes the key anew and is behind the second.
	first.cancel()
	if _, err := first.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	third := a.start(f.patient(), replacing(f.waiting(f.key, f.long()), l))
	last := l.Token
	l = second.granted(f.handOver(), "the waiter's grant after the holder's turn")
	last = l.rises(last, "by hand-over to a waiter")
	if st := f.state(f.key); !f.inspected(st.Token, l) {
		f.t.Fatalf("the holder has token %d; with a waiter in the queue the latest grant has token %d", l.Token, st.Token)
	}
	l.drop()
	l = third.granted(f.handOver(), "the waiter's grant after a release")
	l.rises(last, "by hand-over to a waiter")
	l.drop()
}

// tokensAreIssuedAtGrantThoughLate makes one process slow between asking and
// being granted, while others come and go.
func tokensAreIssuedAtGrantThoughLate(f *fixture) {
	const delay = 200 * time.Millisecond
	slow, quick := f.process(), f.peer()
	restore := f.delayReplies(delay)
	w := slow.start(f.patient(), f.waiting(f.key, f.long()))
	var last int64
	for len(w.done) == 0 {
		l, err := quick.try(f.key, f.long())
		if err != nil {
			if !isHeld(err) {
				f.t.Fatalf("acquire: %v", err)
			}
			break // the slow one has been granted
		}
		last = l.rises(last, "after a release")
		l.drop()
		yield()
	}
	l := w.granted(patience, "the slow acquire")
	l.rises(last, "to a process whose replies are late")
	restore()
	l.holds()
	l.drop()
}

func tokensRiseAcrossRestart(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 2 {
		l := a.take(f.key, f.long())
		last = l.rises(last, "after a release")
		l.drop()
		f.h.Restart()
		f.takeAfterOutage(b, &last, "after a restart")
	}
}

func tokensRiseAcrossWipe(f *fixture) {
	a, b := f.process(), f.process()
	var last int64
	for range 2 {
		for range 3 {
			l := a.take(f.key, f.long())
			last = l.rises(last, "after a release")
			l.drop()
		}
		f.h.Wipe()
		f.takeAfterOutage(b, &last, "after the store lost its data")
		f.takeAfterOutage(a, &last, "after the store lost its data")
	}
}

// takeAfterOutage takes and releases the key, and tolerates that the first
// attempts meet connections that have been closed.
func (f *fixture) takeAfterOutage(p *process, last *int64, after string) {
	f.t.Helper()
	var l *lease
	f.eventually(f.cleanUp(), "an acquire "+after, func() bool {
		var err error
		l, err = p.try(f.key, f.long())
		return err == nil
	})
	*last = l.rises(*last, after)
	l.drop()
}

var deadlineChecks = []check{
	{"DeadlineIsBeforeTheStoresExpiry", nil, deadlineIsBeforeExpiry},
	{"DeadlineCountsFromBeforeTheSend", needs(delaying), deadlineCountsFromBeforeTheSend},
}

// ttls are lengths that a store may have to round.
func (f *fixture) ttls() []time.Duration {
	return []time.Duration{
		f.caps.MinTTL + 42*time.Second,
		f.caps.MinTTL + 42987654321*time.Nanosecond,
		f.long() + 999999*time.Nanosecond,
	}
}

func deadlineIsBeforeExpiry(f *fixture) {
	a, b := f.process(), f.process()
	for _, ttl := range f.ttls() {
		l := a.take(f.key, ttl)
		f.endsInTime(l, l.Deadline, l.back, "the grant")
		if early := deadlineOf(l.sent, ttl); l.Deadline.Before(early.Add(-ttl / 2)) {
			f.t.Errorf("a lease of %v lasts %v for its holder", ttl, l.Deadline.Sub(l.back))
		}
		r := l.renew(ttl)
		back := time.Now()
		if r.Err != nil {
			f.t.Fatalf("renewal of a lease that is held: %v", r.Err)
		}
		f.endsInTime(l, r.Deadline, back, "the renewal")
		w := b.enqueue(f.waiting(f.key, ttl))
		l.drop()
		l = w.granted(f.handOver(), "the waiter's grant after a release")
		f.endsInTime(l, l.Deadline, l.back, "the waiter's grant")
		l.drop()
	}
}

// endsInTime fails the check unless the holder's deadline is before the
// store's, as far as can be seen from outside. back is a time after the reply.
func (f *fixture) endsInTime(l *lease, deadline, back time.Time, what string) {
	f.t.Helper()
	if latest := deadlineOf(back, l.ttl); deadline.After(latest) {
		f.t.Errorf("%s of %v: the deadline is %v later than the margin allows even from the reply", what, l.ttl, deadline.Sub(latest))
	}
	st, now := f.stateAt(l.Key)
	expiry := now.Add(st.Remaining)
	if !st.Held || !f.inspected(st.Token, l) {
		// It may be over: then so is the holder's belief.
		expiry = now
	}
	if deadline.After(expiry) {
		f.t.Errorf("%s of %v: the holder's deadline is %v after the store's expiry", what, l.ttl, deadline.Sub(expiry))
	}
}

func deadlineCountsFromBeforeTheSend(f *fixture) {
	const delay = 400 * time.Millisecond
	p := f.process()
	ttl := f.long()
	for _, wait := range []bool{false, true} {
		restore := f.delayReplies(delay)
		r := f.request(f.key, ttl)
		r.Wait = wait
		l, err := p.acquire(f.patient(), r)
		if err != nil {
			f.t.Fatalf("acquire of a free key whose reply is late: %v", err)
		}
		// The request that was answered cannot have been sent later than this.
		f.countsFrom(l.back.Add(-delay), l.Deadline, ttl, "acquire")
		renewal := l.renew(ttl)
		back := time.Now()
		if renewal.Err != nil {
			f.t.Fatalf("renewal whose reply is late: %v", renewal.Err)
		}
		f.countsFrom(back.Add(-delay), renewal.Deadline, ttl, "renew")
		restore()
		l.drop()
	}
}

func (f *fixture) countsFrom(sent, deadline time.Time, ttl time.Duration, what string) {
	f.t.Helper()
	if latest := deadlineOf(sent, ttl); deadline.After(latest) {
		f.t.Errorf("%s: the deadline is %v too late; it must count from before the send", what, deadline.Sub(latest))
	}
}
