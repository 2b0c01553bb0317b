package drivertest

import (
	"time"
)

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
