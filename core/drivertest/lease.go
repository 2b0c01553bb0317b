package drivertest

import (
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var releaseChecks = []check{
	{"RepeatedReleaseIsNoError", nil, repeatedRelease},
	{"RepeatedReleaseLeavesNextOwnerAlone", needs(queueing), repeatedReleaseLeavesNextOwnerAlone},
	{"ReleaseSurvivesALostReply", needs(dropping), releaseSurvivesALostReply},
	{"ReleaseAfterExpiryLeavesNextOwnerAlone", nil, releaseAfterExpiryLeavesNextOwnerAlone},
	{"ReleaseAfterExpiryIsNotHeld", nil, releaseAfterExpiryIsNotHeld},
	{"ReleaseOfManyAnswersEach", nil, releaseOfManyAnswersEach},
	{"ReleaseTellsThatItIsWrittenBeforeTheAnswer", needs(writing, delaying), releaseTellsThatItIsWritten},
}

func repeatedRelease(f *fixture) {
	p := f.process()
	l := p.take(f.key, f.long())
	l.drop()
	for range 2 {
		if err := l.release(); err != nil {
			f.t.Fatalf("a release repeated before the lease's deadline returned %v, not nil", err)
		}
	}
	if f.state(f.key).Held {
		f.t.Error("the key is held after its release")
	}
	p.take(f.key, f.long()).drop()
}

func repeatedReleaseLeavesNextOwnerAlone(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	third := c.queue(f.key)
	l.drop()
	next := w.granted(f.handOver(), "the waiter's grant after a release")
	if err := l.release(); err != nil {
		f.t.Errorf("a release repeated before the lease's deadline returned %v, not nil", err)
	}
	next.holds()
	third.stillWaits()
	next.drop()
	third.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func releaseSurvivesALostReply(f *fixture) {
	p, other := f.process(), f.peer()
	l := p.take(f.key, f.long())
	dropped := f.dropReply(OpRelease)
	err := l.release()
	dropped()
	if errors.Is(err, driver.ErrNotHeld) {
		f.t.Fatal("a release whose first reply was lost reported its lease as not held")
	}
	if err != nil {
		if err := l.release(); err != nil {
			f.t.Fatalf("a release repeated because its reply was lost returned %v, not nil", err)
		}
	}
	other.take(f.key, f.long()).drop()
}

func releaseAfterExpiryLeavesNextOwnerAlone(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.takeBriefly()
	w := b.start(f.patient(), f.waiting(f.key, f.long()))
	next := w.granted(l.ttl+f.handOver(), "the grant after an expiry")
	next.holds()
	third := c.queue(f.key)
	if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("release of a lease that had expired and gone to another returned %v, not ErrNotHeld", err)
	}
	next.holds()
	third.stillWaits()
	next.drop()
	third.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func releaseAfterExpiryIsNotHeld(f *fixture) {
	p := f.process()
	l := p.takeBriefly()
	f.free(f.key, l.ttl+f.handOver())
	if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
		f.t.Errorf("release of a lease that had expired returned %v, not ErrNotHeld", err)
	}
	f.process().take(f.key, f.long()).drop()
}

func releaseOfManyAnswersEach(f *fixture) {
	p, q := f.process(), f.process()
	if errs := p.end(); len(errs) != 0 {
		f.t.Errorf("release of nothing returned %d results", len(errs))
	}
	gone := p.brief(f.request(f.key+":gone", f.short()))
	next := q.start(f.patient(), f.waiting(gone.Key, f.long())).granted(gone.ttl+f.handOver(), "the grant after an expiry")
	one, two := p.take(f.key+":one", f.long()), p.take(f.key+":two", f.long())
	errs := p.end(one.ending(), gone.ending(), two.ending())
	if errs[0] != nil || errs[2] != nil {
		f.t.Errorf("release of two leases that are held, and one that is not, returned %v", errs)
	}
	if !errors.Is(errs[1], driver.ErrNotHeld) {
		f.t.Errorf("release of a lease that is not held, between two that are, returned %v, not ErrNotHeld", errs[1])
	}
	if f.state(one.Key).Held || f.state(two.Key).Held {
		f.t.Error("a lease that is not held kept others of the same call from being released")
	}
	next.holds()
	next.drop()
}

// releaseTellsThatItIsWritten lets replies come late. The machine may be slower than they are, but not each time.
func releaseTellsThatItIsWritten(f *fixture) {
	a, b := f.process(), f.peer()
	a.take(f.key, f.long()).drop() // a driver may have to find out how
	const delay = 300 * time.Millisecond
	f.delayReplies(delay)
	const tries = 4
	for range tries {
		l := a.take(f.key, f.long())
		written, once := make(chan struct{}), sync.Once{}
		e := l.ending()
		e.Written = func() { once.Do(func() { close(written) }) }
		answered := make(chan error, 1)
		go func() { answered <- a.end(e)[0] }()
		early := false
		select {
		case <-written:
			early = len(answered) == 0
			next, err := b.acquire(f.patient(), f.waiting(f.key, f.long())) // it may arrive first
			if err != nil {
				f.t.Fatalf("acquire a key whose release was written: %v", err)
			}
			next.drop()
			f.answered(answered)
		case err := <-answered:
			answered <- err
			f.answered(answered)
		}
		if early {
			return
		}
	}
	f.t.Errorf("with replies %v late, none of %d releases told that it was written before it was answered", delay, tries)
}

// answered waits for the answer to the release of a lease that was held.
func (f *fixture) answered(answer <-chan error) {
	f.t.Helper()
	if err := await(f, f.timeout+Slack, "the answer to a release", answer); err != nil {
		f.t.Fatalf("release of a lease that is held: %v", err)
	}
}

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

var expiryChecks = []check{
	{"ExpiryServesTheWaiter", nil, expiryServesTheWaiter},
	{"ShortestTTLWorks", nil, shortestTTLWorks},
	{"SilentWaiterDelaysNobodyForLong", needs(stalling, aWayPast), silentWaiter},
	{"LeaseSurvivesRestart", needs(restarting), leaseSurvivesRestart},
}

func expiryServesTheWaiter(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.takeBriefly()
	w := b.start(f.patient(), f.waiting(f.key, f.long()))
	next := w.granted(l.ttl+f.handOver(), "the waiter's grant after an expiry")
	if next.back.Before(l.Deadline) {
		f.t.Errorf("the waiter was granted the key %v before the holder's deadline", l.Deadline.Sub(next.back))
	}
	next.holds()
	if _, err := c.try(f.key, f.long()); err == nil {
		f.t.Error("a key that went to a waiter after an expiry was granted again")
	}
	next.drop()
	// Without a waiter the key is simply free.
	l = c.takeBriefly()
	w = b.start(f.patient(), f.waiting(f.key, f.long()))
	w.granted(l.ttl+f.handOver(), "the grant after an expiry").drop()
}

func shortestTTLWorks(f *fixture) {
	a, b := f.process(), f.process()
	const tries = 500
	var err error
	for range tries {
		// A lease that is over when the answer comes may be refused: often, on a busy machine.
		var l *lease
		if l, err = a.try(f.key, f.caps.MinTTL); err != nil {
			f.takeSoon(b)
			continue
		}
		w := b.start(f.patient(), f.waiting(f.key, f.long()))
		next := w.granted(f.caps.MinTTL+f.handOver(), "the grant after a lease of MinTTL")
		if next.back.Before(l.Deadline) {
			f.t.Error("two owners held the key at once")
		}
		next.holds()
		next.drop()
		return
	}
	f.t.Fatalf("no lease of MinTTL (%v) in %d tries: %v", f.caps.MinTTL, tries, err)
}

// silentWaiter lets a waiting process fall silent, as a crash does, and then
// frees the key.
func silentWaiter(f *fixture) {
	a, silent, c := f.peer(), f.process(), f.peer()
	l := a.take(f.key, f.long())
	ttl := 4 * f.short() // which it keeps until it falls silent
	first := silent.enqueue(f.waiting(f.key, ttl))
	second := c.queue(f.key)
	resume := f.stall()
	l.drop()
	// Its place lasts for its TTL, and so does the lease that it may get.
	l = second.granted(2*ttl+f.handOver(), "the grant behind a waiter that has fallen silent")
	l.holds()
	first.cancel()
	_, err := first.ended(grace+Slack, "a wait that was cancelled while the store was silent")
	_ = err // Either way it holds nothing.
	resume()
	l.holds()
	l.drop()
	f.takeSoon(a)
}

func leaseSurvivesRestart(f *fixture) {
	p, q := f.process(), f.process()
	l := p.take(f.key, f.long())
	f.h.Restart()
	r := l.renew(f.long())
	if r.Err != nil { // the connection was closed
		r = l.renew(f.long())
	}
	if r.Err != nil {
		f.t.Fatalf("renewal of a lease that the restarted store had acknowledged: %v", r.Err)
	}
	ok := false
	for range 3 {
		_, err := q.try(f.key, f.long())
		if err == nil {
			f.t.Fatal("a lease that the restarted store had acknowledged was granted to another owner")
		}
		ok = ok || isHeld(err)
	}
	if !ok {
		f.t.Error("after a restart no request was answered")
	}
	l.holds()
	l.drop()
	// A session works on without being opened anew, after one lost connection.
	start := time.Now()
	q.take(f.key, f.long()).drop()
	if took := time.Since(start); took > f.allow(f.cleanUp()) {
		f.t.Errorf("after a restart a free key took %v", took)
	}
}
