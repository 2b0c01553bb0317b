package drivertest

import (
	"errors"
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

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
