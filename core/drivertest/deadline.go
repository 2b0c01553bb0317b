package drivertest

import (
	"time"
)

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
