package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var wakeChecks = []check{
	{"ReleaseWakesTheWaiter", nil, releaseWakesTheWaiter},
	{"LiveWaiterKeepsItsPlace", needs(queueing), liveWaiterKeepsItsPlace},
	{"WaitersLeaveRoomForOthers", nil, waitersLeaveRoom},
	{"LostWakeUpDelaysByAtMostWake", needs(queueing, losing), lostWakeUp},
	{"LostWakeUpAfterExpiryDelaysByAtMostWake", needs(losing), lostWakeUpAfterExpiry},
}

func releaseWakesTheWaiter(f *fixture) {
	ps := []*process{f.process(), f.process(), f.process()}
	l := ps[0].take(f.key, f.long())
	for i := range 2 * len(ps) {
		w := ps[(i+1)%len(ps)].queue(f.key)
		l.drop()
		l = w.granted(f.handOver(), "the waiter's grant after a release")
		l.holds()
	}
	l.drop()
}

// liveWaiterKeepsItsPlace lets one wait for longer than its TTL, which is the
// longest that the place of a dead one may last. On a machine that sleeps for
// that long its place may rightly be lost; then another one is tried that bears
// four times as much.
func liveWaiterKeepsItsPlace(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	for ttl := max(1500*time.Millisecond, f.caps.MinTTL); ; {
		l := a.take(f.key, 10*f.long())
		first := b.enqueue(f.waiting(f.key, ttl))
		second := c.queue(f.key)
		ttl = first.ttl
		over := time.NewTimer(ttl + ttl/2)
		select {
		case <-over.C:
		case res := <-first.done:
			if res.err == nil {
				f.t.Fatal("a waiter was granted a key that another owner holds")
			}
			first.done <- res
		}
		over.Stop()
		st := f.state(f.key)
		l.drop()
		got, err := first.ended(f.handOver(), "the grant to a waiter that has waited for longer than its TTL")
		lost := errors.Is(err, driver.ErrPlaceLost) && ttl < time.Minute
		switch {
		case err != nil && !lost:
			f.t.Fatalf("the grant to a waiter that has waited for longer than its TTL: %v", err)
		case err == nil && st.Waiting != 2:
			f.t.Errorf("with two waiters, Inspect says %+v", st)
		}
		if !lost {
			got.holds()
			second.stillWaits()
			got.drop()
		}
		second.granted(f.handOver(), "the waiter's grant after a release").drop()
		if !lost {
			return
		}
		f.t.Logf("a waiter has lost its place of %v: %v", ttl, err)
		ttl *= 4
	}
}

// waitersLeaveRoom has more waiters in a process than clients commonly have
// connections.
func waitersLeaveRoom(f *fixture) {
	const n = 64
	a, b := f.process(), f.process()
	var (
		held  []*lease
		queue []*waiter
	)
	for i := range n {
		held = append(held, a.take(fmt.Sprintf("%s:%d", f.key, i), f.long()))
		queue = append(queue, b.queue(held[i].Key))
	}
	b.take(f.key, f.long()).drop()
	for i, l := range held {
		l.drop()
		queue[i].granted(f.handOver(), "the waiter's grant after a release").drop()
	}
}

func lostWakeUp(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	first, second := b.queue(f.key), c.queue(f.key)
	restore := f.losePushes()
	l.drop()
	l = first.granted(f.handOver(), "a grant whose wake-up was lost")
	l.holds()
	l.drop()
	l = second.granted(f.handOver(), "a grant whose wake-up was lost")
	l.holds()
	restore()
	// The push channel serves again.
	w := a.queue(f.key)
	l.drop()
	l = w.granted(f.handOver(), "the waiter's grant after a release")
	l.holds()
	l.drop()
}

func lostWakeUpAfterExpiry(f *fixture) {
	a, b := f.process(), f.process()
	r := f.request(f.key, f.short()+time.Second)
	l := a.brief(r)
	w := b.start(f.patient(), f.waiting(f.key, f.long()))
	restore := f.losePushes()
	next := w.granted(l.ttl+f.handOver(), "a grant after an expiry whose wake-up was lost")
	if next.back.Before(l.Deadline) {
		f.t.Errorf("the waiter was granted the key %v before the holder's deadline", l.Deadline.Sub(next.back))
	}
	next.holds()
	restore()
	next.drop()
}
