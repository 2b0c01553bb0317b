package drivertest

import (
	"context"
	"errors"
	"slices"
	"sync"
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

var afterChecks = []check{
	{"RequestAfterAReleaseIsNotHeldUpByIt", needs(following), afterIsNotHeldUp},
	{"RequestAfterAReleaseQueuesBehindOthers", needs(queueing, following), afterQueuesBehindOthers},
	{"RequestAfterALostLeaseSaysThatItWasLost", needs(following), afterALostLease},
	{"RequestAfterAReleaseSurvivesALostReply", needs(following, dropping), afterALostReply},
}

func after(r driver.Request, old *lease) driver.Request {
	e := old.ending()
	r.After = &e
	return r
}

// afterIsNotHeldUp has the request arrive before the release, at the same time, and after it.
func afterIsNotHeldUp(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	for i := range 24 {
		r := f.request(f.key, f.long())
		r.Wait = i%2 == 0
		var released error
		var all sync.WaitGroup
		switch i % 3 {
		case 1:
			all.Go(func() { released = l.release() })
		case 2:
			released = l.release()
		}
		next, err := a.acquire(f.patient(), after(r, l))
		all.Wait()
		if err != nil {
			f.t.Fatalf("a request after a release (wait %v): %v", r.Wait, err)
		}
		if i%3 == 0 {
			released = l.release()
		}
		if released != nil {
			f.t.Fatalf("the release of a lease that was held, with a request after it: %v", released)
		}
		next.follows(l)
		l.gone("by a request after its release")
		if _, err := b.try(f.key, f.long()); !isHeld(err) {
			f.t.Fatalf("a request for a key that is held returned %v, not a *HeldError", err)
		}
		next.holds()
		l = next
	}
	l.drop()
	b.take(f.key, f.long()).drop()
}

func afterQueuesBehindOthers(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	if _, err := a.acquire(f.prompt(), after(f.request(f.key, f.long()), l)); !isHeld(err) {
		f.t.Fatalf("a request after a release that would not wait, when another process waits, returned %v, not a *HeldError", err)
	}
	next := w.granted(f.handOver(), "the waiter's grant when the holder has released its lease")
	next.follows(l)
	if err := l.release(); err != nil {
		f.t.Fatalf("the release of a lease that was held, with a request after it: %v", err)
	}
	next.holds()
	next.drop()
	f.takeSoon(b)
}

func afterALostLease(f *fixture) {
	a, b := f.process(), f.process()
	l := a.takeBriefly()
	w := b.start(f.patient(), f.waiting(f.key, f.long()))
	other := w.granted(l.ttl+f.handOver(), "the grant after an expiry")
	if _, err := a.acquire(f.prompt(), after(f.request(f.key, f.long()), l)); !isHeld(err) {
		f.t.Fatalf("a request after the release of a lease that had expired, with another holder, returned %v, not a *HeldError", err)
	}
	if err := l.release(); !errors.Is(err, driver.ErrNotHeld) {
		f.t.Fatalf("the release of a lease that had expired returned %v, not ErrNotHeld", err)
	}
	other.holds()
	other.drop()
	f.takeSoon(a)
}

func afterALostReply(f *fixture) {
	for _, wait := range []bool{false, true} {
		a, b := f.process(), f.peer()
		l := a.take(f.key, f.long())
		r := f.request(f.key, f.long())
		r.Wait = wait
		dropped := f.dropReply(OpAcquire)
		next, err := a.acquire(f.patient(), after(r, l))
		dropped()
		if isHeld(err) {
			f.t.Fatal("a request after a release whose first reply was lost found the key held by itself")
		}
		if rerr := l.release(); rerr != nil {
			f.t.Fatalf("the release of a lease that was held, with a request after it: %v", rerr)
		}
		if err == nil {
			next.follows(l)
			next.holds()
			next.drop()
		}
		f.takeSoon(b)
	}
}

var keepChecks = []check{
	{"KeepLeavesTheKeyTaken", needs(keeping), keepLeavesTheKeyTaken},
	{"KeepOutlastsTheTTL", needs(keeping), keepOutlastsTheTTL},
	{"KeepThatHasPassedFreesAtOnce", needs(keeping), keepThatHasPassed},
	{"KeptKeyWakesItsWaiterInTime", needs(keeping), keptKeyWakes},
}

func keepLeavesTheKeyTaken(f *fixture) {
	const keep = time.Second
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	w := b.queue(f.key)
	f.keeps(l, w, keep)
}

func keepOutlastsTheTTL(f *fixture) {
	a, b := f.process(), f.process()
	for r := f.request(f.key, max(time.Second, f.caps.MinTTL)); ; r = f.longer(r) {
		l := a.brief(r)
		w := b.start(f.patient(), f.waiting(f.key, f.long()))
		keep := l.ttl + 300*time.Millisecond
		e := l.ending()
		e.Keep = keep
		err := a.end(e)[0]
		if err == nil {
			f.kept(l, w, keep)
			return
		}
		if time.Now().Before(l.Deadline) || f.longest(l.ttl) {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
		}
		w.granted(f.handOver(), "the waiter's grant after an expiry").drop() // the machine was too slow
	}
}

// keeps ends l, for which w waits, with keep.
func (f *fixture) keeps(l *lease, w *waiter, keep time.Duration) {
	f.t.Helper()
	e := l.ending()
	e.Keep = keep
	for range 2 { // a repeated release changes nothing
		if err := l.p.end(e)[0]; err != nil {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
		}
	}
	f.kept(l, w, keep)
}

// kept follows a lease that was released with keep, and for which w waits.
func (f *fixture) kept(l *lease, w *waiter, keep time.Duration) {
	f.t.Helper()
	if err := l.p.renew(l.renewal(f.long()))[0].Err; err == nil {
		f.t.Error("a lease that was released with Keep could be renewed")
	}
	if time.Since(l.sent) < keep/2 {
		if _, err := f.process().try(f.key, f.long()); !isHeld(err) && time.Since(l.sent) < keep {
			f.t.Errorf("a request for a key that is kept returned %v, not a *HeldError", err)
		}
	}
	next := w.granted(keep+f.handOver(), "the waiter's grant after Keep had passed")
	// The store granted l after l.sent, so it may not be free before this.
	if early := keep - next.back.Sub(l.sent); early > 0 {
		f.t.Errorf("the waiter got the key %v before Keep (%v) had passed", early, keep)
	}
	next.holds()
	next.drop()
}

func keepThatHasPassed(f *fixture) {
	const (
		keep = 50 * time.Millisecond
		// A store of several nodes answers when most of them have granted the lease, and
		// the last of them counts from later.
		last = 100 * time.Millisecond
	)
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	f.eventually(keep+last+Slack, "Keep passing", func() bool { return time.Since(l.back) > keep+last })
	e := l.ending()
	e.Keep = keep
	if err := a.end(e)[0]; err != nil {
		f.t.Fatalf("release of a lease that is held, with Keep %v: %v", keep, err)
	}
	if st := f.state(f.key); !same(st, driver.State{Token: st.Token}) {
		f.t.Errorf("after a release with a Keep that has passed, Inspect says %+v", st)
	}
	b.take(f.key, f.long()).drop()
}

// keptKeyWakes goes by the middle of several times, since a machine may be late once.
func keptKeyWakes(f *fixture) {
	const (
		left  = 300 * time.Millisecond // of Keep after the release
		limit = 100 * time.Millisecond
	)
	ps := []*process{f.process(), f.process()}
	l := ps[0].take(f.key, f.long())
	var late []time.Duration
	for i := range 7 {
		w := ps[(i+1)%2].queue(f.key)
		e := l.ending()
		e.Keep = time.Since(l.back) + left
		if err := l.p.end(e)[0]; err != nil {
			f.t.Fatalf("release of a lease that is held, with Keep %v: %v", e.Keep, err)
		}
		next := w.granted(left+f.handOver(), "the waiter's grant after Keep had passed")
		late = append(late, next.back.Sub(l.back.Add(e.Keep)))
		l = next
	}
	l.drop()
	slices.Sort(late)
	if late[len(late)/2] > f.allow(limit) {
		f.t.Errorf("after Keep had passed, waiters got the key late by %v; %v is promised", late, limit)
	}
}
