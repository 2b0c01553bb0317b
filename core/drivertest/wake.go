package drivertest

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var wakeChecks = []check{
	{"ReleaseWakesTheWaiter", nil, releaseWakesTheWaiter},
	{"LiveWaiterKeepsItsPlace", nil, liveWaiterKeepsItsPlace},
	{"WaitersLeaveRoomForOthers", nil, waitersLeaveRoom},
	{"LostWakeUpDelaysByAtMostWake", needs(losing), lostWakeUp},
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
// longest that the place of a dead one may last.
func liveWaiterKeepsItsPlace(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, 10*f.long())
	first := b.liveWaiter(max(1500*time.Millisecond, f.caps.MinTTL))
	second := c.queue(f.key)
	if st := f.state(f.key); st.Waiting != 2 {
		f.t.Errorf("with two waiters, Inspect says %+v", st)
	}
	l.drop()
	l = first.granted(f.handOver(), "the grant to a waiter that has waited for longer than its TTL")
	l.holds()
	second.stillWaits()
	l.drop()
	second.granted(f.handOver(), "the waiter's grant after a release").drop()
}

// liveWaiter returns one that has waited for longer than its TTL. On a machine that slept
// for that long it may rightly have lost its place, and another one is tried that bears
// four times as much.
func (p *process) liveWaiter(ttl time.Duration) *waiter {
	p.f.t.Helper()
	for ; ; ttl *= 4 {
		w := p.enqueue(p.f.waiting(p.f.key, ttl))
		over := time.NewTimer(ttl + ttl/2)
		defer over.Stop()
		select {
		case <-over.C:
			return w
		case res := <-w.done:
			if !errors.Is(res.err, driver.ErrPlaceLost) || ttl > time.Minute/2 {
				p.f.t.Fatalf("a waiter returned (error %v) while another owner holds the key", res.err)
			}
		}
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
	ttl := f.short() + time.Second
	l := a.take(f.key, ttl)
	w := b.enqueue(f.waiting(f.key, f.long()))
	restore := f.losePushes()
	next := w.granted(ttl+f.handOver(), "a grant after an expiry whose wake-up was lost")
	if next.back.Before(l.Deadline) {
		f.t.Errorf("the waiter was granted the key %v before the holder's deadline", l.Deadline.Sub(next.back))
	}
	next.holds()
	restore()
	next.drop()
}
