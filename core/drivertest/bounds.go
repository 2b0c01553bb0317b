package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Slack is what the suite adds to every bound that it takes from the contract
// (a context's end + 50 ms, Capabilities.Wake, a TTL), because the machine that
// runs the test may be too busy to notice in time. A machine that is seen to
// oversleep during a check gets twenty times as much on top. There is no other
// allowance.
//
// Faults are made to miss a bound by much more than that: leases that nobody
// should wait for last two minutes, attempts that nobody should sit through one.
const Slack = 1500 * time.Millisecond

const (
	// grace is how late after the end of its context a call may return.
	grace = 50 * time.Millisecond

	// storeTimeout bounds each attempt to reach the store. No machine is so busy
	// that a store which answers takes so long.
	storeTimeout = 20 * time.Second

	// faultTimeout is that where a check is about a store that does not answer. It
	// passes where a reply is lost in silence.
	faultTimeout = 3 * time.Second

	// patience ends calls that are expected to succeed.
	patience = time.Minute

	// promptness ends those that wait for nobody but the store.
	promptness = 2*storeTimeout + Slack
)

// long is the TTL of a lease that must not end by itself during a check.
func (f *fixture) long() time.Duration { return max(2*time.Minute, 4*f.caps.MinTTL) }

// short is the TTL of a lease whose end a check waits for.
func (f *fixture) short() time.Duration { return max(400*time.Millisecond, f.caps.MinTTL) }

// allow returns what a bound is on this machine, which may have overslept.
func (f *fixture) allow(bound time.Duration) time.Duration {
	if f.machine == nil {
		return bound
	}
	return f.machine.Allow(bound)
}

// handOver is how long a waiter may take to get a key that has become free.
func (f *fixture) handOver() time.Duration { return f.caps.Wake + Slack }

// cleanUp is how long an owner that was given up may stay in the store once
// the store answers: one attempt may be stuck and another is then made.
func (f *fixture) cleanUp() time.Duration { return f.timeout + f.caps.Wake + Slack }

// onTheWall reports whether a time goes by the wall clock alone, as all virtual times do.
func (f *fixture) onTheWall(at time.Time) bool { return f.machine != nil && at == at.Round(0) }

// within returns what do returns, and fails the check unless that is in time. A
// do that is late is left behind, so it does not touch the test.
func within[T any](f *fixture, limit time.Duration, what string, do func() T) T {
	f.t.Helper()
	done := make(chan T, 1)
	go func() { done <- do() }()
	return await(f, limit, what, done)
}

// finish waits for what a check has started.
func (f *fixture) finish(running *sync.WaitGroup, what string) {
	f.t.Helper()
	within(f, patience+grace+Slack, what, func() struct{} { running.Wait(); return struct{}{} })
}

// await receives from c, or fails the check when the limit has passed.
func await[T any](f *fixture, limit time.Duration, what string, c <-chan T) T {
	f.t.Helper()
	began := time.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case v := <-c:
			return v
		case <-timer.C:
		}
		if left := f.allow(limit) - time.Since(began); left > 0 {
			timer.Reset(left)
			continue
		}
		select {
		case v := <-c: // both were ready
			return v
		default:
		}
		f.t.Fatalf("%s took longer than %v", what, limit)
	}
}

// eventually fails the check unless ok becomes true in time.
func (f *fixture) eventually(limit time.Duration, what string, ok func() bool) {
	f.t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > f.allow(limit) {
			if ok() {
				return
			}
			f.t.Fatalf("%s: not within %v", what, limit)
		}
		<-tick.C
	}
}

// deadlineOf returns the latest moment that a driver may name as the end of a
// lease whose request was sent at the latest at sent.
func deadlineOf(sent time.Time, ttl time.Duration) time.Time {
	return driver.Deadline(sent, ttl)
}

// patient returns a context for a call that is expected to succeed, perhaps
// after waiting.
func (f *fixture) patient() context.Context { return f.lasting(patience) }

// prompt returns a context for a call that needs the store but for nobody else:
// one attempt may fail.
func (f *fixture) prompt() context.Context { return f.lasting(promptness) }

func (f *fixture) lasting(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	f.t.Cleanup(cancel)
	return ctx
}
