package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var replaceChecks = []check{
	{"ReplaceHandsOverWhenNobodyWaits", nil, replaceHandsOver},
	{"ReplaceQueuesBehindOthers", needs(queueing), replaceQueuesBehindOthers},
	{"ReplaceThatDoesNotWaitYieldsToOthers", needs(queueing), replaceYieldsToOthers},
	{"ReplaceIsIdempotent", nil, replaceIsIdempotent},
	{"ReplaceOfAnEndedLeaseEndsNobodyElses", needs(queueing), replaceOfAnEndedLease},
	{"ReplaceSurvivesALostReply", needs(dropping), replaceSurvivesALostReply},
	{"ReplaceGivenUpLeavesNothing", needs(queueing), replaceGivenUp},
	{"ReplaceGivenUpInSilenceLeavesNothing", needs(stalling), replaceGivenUpInSilence},
}

func replacing(r driver.Request, old *lease) driver.Request {
	e := old.ending()
	r.Replace = &e
	return r
}

// gone fails the check unless the lease has ended.
func (l *lease) gone(why string) {
	l.p.f.t.Helper()
	if err := l.p.renew(l.renewal(l.p.f.long()))[0].Err; !errors.Is(err, driver.ErrNotHeld) {
		l.p.f.t.Fatalf("renewal of a lease that was replaced %s returned %v, not ErrNotHeld", why, err)
	}
}

func (l *lease) follows(old *lease) {
	l.p.f.t.Helper()
	if l.p.f.caps.Tokens != driver.NoTokens {
		l.rises(old.Token, "by replacement")
	}
}

func replaceHandsOver(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	for _, wait := range []bool{false, true, false} {
		r := f.request(f.key, f.long())
		r.Wait = wait
		next, err := a.acquire(f.patient(), replacing(r, l))
		if err != nil {
			f.t.Fatalf("replacing a lease when nobody else waits (wait %v): %v", wait, err)
		}
		next.follows(l)
		l.gone("when nobody else waited")
		if _, err := b.try(f.key, f.long()); !isHeld(err) {
			f.t.Fatalf("a request for a key whose lease was replaced returned %v, not a *HeldError", err)
		}
		next.holds()
		l = next
	}
	l.drop()
	b.take(f.key, f.long()).drop()
}

func replaceQueuesBehindOthers(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	again := a.start(f.patient(), replacing(f.waiting(f.key, f.long()), l))
	next := w.granted(f.handOver(), "the waiter's grant when the holder replaces its lease")
	next.follows(l)
	next.holds()
	again.stillWaits()
	l.gone("behind a waiter")
	f.eventually(f.cleanUp(), "the place of the one that replaced its lease", func() bool { return f.state(f.key).Waiting == 1 })
	next.drop()
	last := again.granted(f.handOver(), "the grant to the one that replaced its lease, when its turn comes,")
	last.follows(next)
	last.holds()
	last.drop()
}

func replaceYieldsToOthers(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	if _, err := a.acquire(f.prompt(), replacing(f.request(f.key, f.long()), l)); !isHeld(err) {
		f.t.Fatalf("replacing a lease without waiting, when another process waits, returned %v, not a *HeldError", err)
	}
	next := w.granted(f.handOver(), "the waiter's grant when the holder replaces its lease")
	next.follows(l)
	l.gone("without waiting")
	next.holds()
	next.drop()
	// The clean-up of the place that was refused is detached.
	f.eventually(f.cleanUp(), "an empty key after the last release", func() bool {
		st := f.state(f.key)
		return !st.Held && st.Waiting == 0
	})
}

func replaceIsIdempotent(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	r := replacing(f.waiting(f.key, f.long()), l)
	next, err := a.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("replacing a lease when nobody else waits: %v", err)
	}
	again, err := a.acquire(f.patient(), r)
	if err != nil {
		f.t.Fatalf("the same replacement repeated by the owner that holds the key: %v", err)
	}
	if again.ID != next.ID || again.Token != next.Token {
		f.t.Fatalf("a replacement repeated is another grant: token %d, then %d", next.Token, again.Token)
	}
	again.holds()
	if err := l.release(); err != nil {
		f.t.Errorf("release of a lease that was replaced returned %v, not nil", err)
	}
	again.holds()
	again.drop()
	// A copy that arrives after everything is over takes nothing.
	other := b.take(f.key, f.long())
	late := r
	late.Wait = false
	if _, err := a.acquire(f.patient(), late); err == nil {
		f.t.Fatal("a replacement repeated after the release was granted beside another owner")
	}
	other.holds()
	other.drop()
	if _, err := a.acquire(f.patient(), late); err == nil {
		f.t.Fatal("a replacement repeated after the release was granted again")
	}
	f.takeSoon(b)
}

func replaceOfAnEndedLease(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.takeBriefly()
	w := b.start(f.patient(), f.waiting(f.key, f.long()))
	next := w.granted(l.ttl+f.handOver(), "the grant after an expiry")
	next.holds()
	if _, err := a.acquire(f.prompt(), replacing(f.request(f.key, f.long()), l)); err == nil {
		f.t.Fatal("replacing a lease that had expired took the key from its next owner")
	}
	next.holds()
	third := c.queue(f.key)
	ctx := f.patient()
	again := a.start(ctx, replacing(f.waiting(f.key, f.long()), l))
	next.holds()
	third.stillWaits()
	next.drop()
	last := third.granted(f.handOver(), "the waiter's grant after a release")
	last.holds()
	last.drop()
	// The replacement may have queued, or have been told that its place is lost.
	again.cancel()
	if l, err := again.ended(f.handOver(), "replacing a lease that had expired"); err == nil {
		l.drop()
	}
	f.takeSoon(b)
}

func replaceSurvivesALostReply(f *fixture) {
	for _, wait := range []bool{false, true} {
		a, b := f.process(), f.peer()
		l := a.take(f.key, f.long())
		r := f.request(f.key, f.long())
		r.Wait = wait
		dropped := f.dropReply(OpAcquire)
		next, err := a.acquire(f.patient(), replacing(r, l))
		dropped()
		if isHeld(err) {
			f.t.Fatal("a replacement whose first reply was lost found the key held by itself")
		}
		if err == nil {
			next.follows(l)
			next.holds()
			l.gone("though the first reply was lost")
			next.drop()
		}
		// Even after an error the old lease's end is the driver's to clean up.
		f.takeSoon(b)
	}
}

func replaceGivenUp(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	first, second := b.queue(f.key), c.queue(f.key)
	again := a.start(f.patient(), replacing(f.waiting(f.key, f.long()), l))
	next := first.granted(f.handOver(), "the waiter's grant when the holder replaces its lease")
	next.holds()
	again.cancel()
	if _, err := again.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	next.drop()
	last := second.granted(f.handOver(), "the waiter's grant after a release")
	last.holds()
	f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return f.state(f.key).Waiting == 0 })
	last.drop()
	l.gone("and whose replacement was given up")
}

func replaceGivenUpInSilence(f *fixture) {
	p, q := f.process(), f.peer()
	for _, wait := range []bool{false, true} {
		l := p.take(f.key, f.long())
		resume := f.stall()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		r := f.request(f.key, f.long())
		r.Wait = wait
		_, err := p.acquire(ctx, replacing(r, l))
		cancel()
		if err == nil {
			f.t.Fatal("success while the store is silent")
		}
		resume()
		// The old lease's end is the driver's to clean up, like the new one's.
		f.noGhost(p, q)
	}
}
