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
