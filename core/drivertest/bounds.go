package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Slack is what the suite adds to every bound that it takes from the contract
// (a context's end + 50 ms, Capabilities.Wake, a TTL), because the machine that
// runs the test may be too busy to notice in time. It is the only allowance.
//
// Faults are made to miss a bound by much more than that: leases that nobody
// should wait for last 30 s, attempts that nobody should sit through 20 s.
const Slack = 1500 * time.Millisecond

const (
	// grace is how late after the end of its context a call may return.
	grace = 50 * time.Millisecond

	// storeTimeout bounds each attempt to reach the store, unless a check is
	// about a store that does not answer.
	storeTimeout = 2 * time.Second

	// patience ends calls that are expected to succeed.
	patience = 15 * time.Second

	// promptness ends those that wait for nobody but the store.
	promptness = 2*storeTimeout + Slack
)

// long is the TTL of a lease that must not end by itself during a check.
func (f *fixture) long() time.Duration { return max(30*time.Second, 4*f.caps.MinTTL) }

// short is the TTL of a lease whose end a check waits for.
func (f *fixture) short() time.Duration { return max(400*time.Millisecond, f.caps.MinTTL) }

// handOver is how long a waiter may take to get a key that has become free.
func (f *fixture) handOver() time.Duration { return f.caps.Wake + Slack }

// cleanUp is how long an owner that was given up may stay in the store once
// the store answers: one attempt may be stuck and another is then made.
func (f *fixture) cleanUp() time.Duration { return storeTimeout + f.caps.Wake + Slack }

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
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
	}
	select {
	case v := <-c: // both were ready
		return v
	default:
	}
	f.t.Fatalf("%s took longer than %v", what, limit)
	panic("unreachable")
}

// eventually fails the check unless ok becomes true in time.
func (f *fixture) eventually(limit time.Duration, what string, ok func() bool) {
	f.t.Helper()
	end := time.Now().Add(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
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
