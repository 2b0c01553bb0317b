package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
