package drivertest

import (
	"context"
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

var withdrawalChecks = []check{
	{"WithdrawnWaiterLeavesNothing", nil, withdrawnWaiterLeavesNothing},
	{"WithdrawalRacingWithReleaseLeavesNothing", nil, withdrawalRacingWithRelease},
	{"WithdrawalAfterGrantLeavesNothing", needs(delaying, aWayPast), withdrawalAfterGrant},
	{"AcquireWithDeadContextLeavesNothing", nil, deadContextLeavesNothing},
	{"AcquireGivenUpInSilenceLeavesNothing", needs(stalling), givenUpInSilence},
	{"WaiterGivenUpInSilenceLeavesNothing", needs(stalling), waiterGivenUpInSilence},
	{"AcquireGivenUpAfterALostReplyLeavesNothing", needs(dropping), givenUpAfterALostReply},
}

func withdrawnWaiterLeavesNothing(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	for range 3 {
		first, second := b.queue(f.key), c.queue(f.key)
		first.cancel()
		_, err := first.ended(grace+Slack, "a wait that was cancelled")
		if err == nil {
			f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
		}
		if errors.Is(err, driver.ErrPlaceLost) || isHeld(err) {
			f.t.Errorf("a wait that was cancelled returned %v, as if the caller might ask again", err)
		}
		f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return f.state(f.key).Waiting == f.places(1) })
		second.stillWaits()
		l.drop()
		l = second.granted(f.handOver(), "the grant to the one behind a withdrawn waiter")
		l.holds()
		if st := f.state(f.key); st.Waiting != 0 {
			f.t.Fatalf("nobody waits, but Inspect says %+v", st)
		}
	}
	l.drop()
	if st := f.state(f.key); st.Held || st.Waiting != 0 {
		f.t.Errorf("after a wait was cancelled and the lease released, Inspect says %+v", st)
	}
}

func withdrawalRacingWithRelease(f *fixture) {
	a, b, c := f.process(), f.process(), f.process()
	l := a.take(f.key, f.long())
	for i := range 12 {
		first := b.queue(f.key)
		released := make(chan error, 1)
		go func() {
			defer close(released)
			if err := a.s.Release(f.patient(), []driver.Ending{l.ending()})[0]; err != nil {
				released <- err
			}
		}()
		if i%2 == 0 {
			yield()
		}
		first.cancel()
		won, err := first.ended(grace+Slack, "a wait that was cancelled")
		if err := await(f, patience, "release", released); err != nil {
			f.t.Fatalf("release of a lease that is held: %v", err)
		}
		if err == nil {
			won.holds()
			won.drop()
		}
		f.takeSoon(c)
		l = a.take(f.key, f.long())
	}
	l.drop()
}

// withdrawalAfterGrant cancels a wait when the store has granted the key, but
// the process has not heard of it.
func withdrawalAfterGrant(f *fixture) {
	a, b := f.peer(), f.process()
	for range 2 {
		l := a.take(f.key, f.long())
		w := b.queue(f.key)
		restore := f.delayReplies(time.Second)
		l.drop()
		f.eventually(f.handOver(), "the waiter's grant after a release", func() bool { return f.state(f.key).Held })
		w.cancel()
		if won, err := w.ended(grace+Slack, "a wait that was cancelled"); err == nil {
			won.holds()
			won.drop()
		}
		restore()
		f.takeSoon(a)
	}
}

func deadContextLeavesNothing(f *fixture) {
	p, q := f.process(), f.process()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 10 {
		r := f.request(f.key, f.long())
		r.Wait = i%2 == 0
		w := p.start(ctx, r)
		if l, err := w.ended(grace+Slack, "an acquire whose context had ended before"); err == nil {
			l.holds()
			l.drop()
		}
		f.takeSoon(q)
	}
}

func givenUpInSilence(f *fixture) {
	p, q := f.process(), f.peer()
	_ = p.ping() // so that connections exist
	for _, wait := range []bool{false, true} {
		resume := f.stall()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		r := f.request(f.key, f.long())
		r.Wait = wait
		_, err := p.acquire(ctx, r)
		cancel()
		if err == nil {
			f.t.Fatal("success while the store is silent")
		}
		resume()
		f.noGhost(p, q)
	}
}

func waiterGivenUpInSilence(f *fixture) {
	a, b, c := f.process(), f.process(), f.peer()
	l := a.take(f.key, f.long())
	first, second := b.queue(f.key), c.queue(f.key)
	resume := f.stall()
	first.cancel()
	if _, err := first.ended(grace+Slack, "a wait that was cancelled while the store was silent"); err == nil {
		f.t.Fatal("a wait that was cancelled was granted while another owner held the key")
	}
	resume()
	f.eventually(f.cleanUp(), "the release after the store has come back", func() bool { return l.release() == nil })
	l = second.granted(f.cleanUp(), "the grant to the one behind a withdrawn waiter")
	l.holds()
	l.drop()
	f.eventually(f.cleanUp(), "a cancelled wait leaving the queue", func() bool { return same(f.state(f.key), f.idle()) })
}

// idle is the state of the key when nobody holds it and nobody waits.
func (f *fixture) idle() driver.State { return driver.State{Token: f.state(f.key).Token} }

func givenUpAfterALostReply(f *fixture) {
	p, q := f.process(), f.peer()
	_ = p.ping() // so that connections exist
	for _, wait := range []bool{false, true} {
		dropped := f.h.DropReply(OpAcquire)
		r := f.request(f.key, f.long())
		r.Wait = wait
		w := p.start(f.patient(), r)
		f.eventually(promptness, "the loss of the reply to an acquire, by the harness", dropped)
		time.AfterFunc(150*time.Millisecond, w.cancel) // the driver may repeat it first
		l, err := w.ended(promptness, "an acquire that was given up")
		switch {
		case isHeld(err):
			f.t.Fatal("an acquire whose first reply was lost found the key held by itself")
		case err == nil: // the driver repeated it in time
			l.holds()
			l.drop()
		}
		f.takeSoon(q)
	}
}

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
