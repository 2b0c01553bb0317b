package drivertest

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var contentionChecks = []check{
	{"HolderLearnsOfWaiters", needs(queueing), holderLearnsOfWaiters},
	{"HolderLearnsOfThoseWhoDoNotWait", needs(recalling), holderLearnsOfThoseWhoDoNotWait},
	{"RenewalTellsOfWaiters", needs(queueing), renewalTellsOfWaiters},
	{"GrantTellsOfWaiters", needs(queueing), grantTellsOfWaiters},
	{"WaitingIsReportedForWaitersOnly", nil, waitingIsReported},
}

func holderLearnsOfWaiters(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	told := a.sink.contention(l.ID)
	w := b.queue(f.key)
	for waiting := false; !waiting; { // false may answer something earlier
		waiting = await(f, f.handOver(), "Sink.Contended after another process had queued", told)
	}
	l.drop()
	w.granted(f.handOver(), "the waiter's grant after a release").drop()
}

func holderLearnsOfThoseWhoDoNotWait(f *fixture) {
	a, b := f.process(), f.process()
	for range 2 {
		l := a.take(f.key, f.long())
		told := a.sink.contention(l.ID)
		f.eventually(f.handOver(), "Sink.Contended while another process asks", func() bool {
			if _, err := b.try(f.key, f.long()); !isHeld(err) { // what one of them sends may be lost
				f.t.Fatalf("a request for a held key that would not wait returned %v, not a *HeldError", err)
			}
			select {
			case waiting := <-told:
				return waiting
			default:
				return false
			}
		})
		l.drop()
	}
}

func renewalTellsOfWaiters(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	contended := func() bool {
		r := l.renew(f.long())
		if r.Err != nil {
			f.t.Fatalf("renewal of a lease that is held: %v", r.Err)
		}
		return r.Contended
	}
	if contended() {
		f.t.Error("Renewed.Contended is true, but nobody waits")
	}
	w := b.queue(f.key)
	if !contended() {
		f.t.Error("Renewed.Contended is false, but another process waits")
	}
	w.cancel()
	if _, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	f.eventually(f.cleanUp(), "Renewed.Contended being false after the only waiter had withdrawn", func() bool { return !contended() })
	l.drop()
}

func grantTellsOfWaiters(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	first, second := b.queue(f.key), c.queue(f.key)
	l.drop()
	l = first.granted(f.handOver(), "the waiter's grant after a release")
	if !l.Contended {
		f.t.Error("Grant.Contended is false, but another process waits")
	}
	l.drop()
	l = second.granted(f.handOver(), "the waiter's grant after a release")
	if l.Contended { // a part of the store may not have heard yet that the first is done
		f.eventually(f.cleanUp(), "Renewed.Contended being false after Grant.Contended, while nobody waits", func() bool {
			r := l.renew(f.long())
			return r.Err == nil && !r.Contended
		})
	}
	l.drop()
}

func waitingIsReported(f *fixture) {
	a, b := f.process(), f.process()
	l := a.take(f.key, f.long())
	r := f.request(f.key, f.long())
	if _, err := b.acquire(f.prompt(), r); !isHeld(err) {
		f.t.Fatalf("a request for a held key that would not wait returned %v, not a *HeldError", err)
	}
	start := time.Now()
	w := b.queue(f.key) // fails unless Waiting is called
	if took := time.Since(start); took > f.allow(Slack) {
		f.t.Errorf("Sink.Waiting was called after %v", took)
	}
	b.sink.mu.Lock()
	for id := range b.sink.queued {
		if id != w.id {
			select {
			case <-b.sink.queued[id]:
				f.t.Error("Sink.Waiting was called for an owner that does not wait")
			default:
			}
		}
	}
	b.sink.mu.Unlock()
	select {
	case <-a.sink.waiting(l.ID):
		f.t.Error("Sink.Waiting was called for a free key")
	default:
	}
	if n := b.sink.losses() + a.sink.losses(); n != 0 {
		f.t.Errorf("Sink.Lost was called %d times, but nothing was lost", n)
	}
	l.drop()
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	if l.ID != w.id || l.ID == (driver.ID{}) {
		f.t.Error("the grant does not carry the ID of its request")
	}
	l.drop()
}
