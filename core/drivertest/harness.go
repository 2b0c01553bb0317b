package drivertest

import (
	"context"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Harness is a store and a driver for it, made for one check.
//
// Only Driver is required. The functions are abilities: ways to do to the store
// what befalls it in production. A check that needs one which is nil is skipped
// and names it. They are called from the check's own goroutine, never two at a
// time; one that cannot do its work fails the test that it was made for. What
// is not undone when the check ends is the harness's to clean up, by t.Cleanup.
type Harness struct {
	// Driver is the driver under test. The suite opens several sessions, each
	// standing for a process.
	Driver driver.Driver

	// Peer is a driver for the same store by a way that Stall, DropReply,
	// DelayReplies and LosePushes do not touch: for a fault proxy, the way
	// past it. Nil means that Driver serves for that too.
	Peer driver.Driver

	// Stall makes the store silent: nothing that is sent gets an answer until
	// resume is called. Whether it is executed then, before or not at all is
	// left open. The connections stay open.
	Stall func() (resume func())

	// Refuse has the store answer acquisitions with an error, or not be reached with one, and end
	// no lease, until restore is called. The driver's error has cause in its text. What else
	// the store refuses is left open.
	Refuse func() (cause string, restore func())

	// DropReply loses the reply to the next request of that kind, after it was
	// executed. The client may see a closed connection or silence. The
	// function returned tells whether a reply was dropped.
	DropReply func(Op) (dropped func() bool)

	// DelayReplies lets every reply arrive d after it was sent, until restore
	// is called.
	DelayReplies func(d time.Duration) (restore func())

	// LosePushes loses whatever the store sends without being asked, such as
	// wake-ups, without an error that a driver could see, until restore is
	// called. What was lost is not sent later.
	LosePushes func() (restore func())

	// Restart stops the store and starts it again with all that it had
	// acknowledged. It returns when the store answers.
	Restart func()

	// Wipe makes the store forget everything, as a restart without
	// persistence or a flush does. It returns when the store answers.
	Wipe func()

	// Setup is what an application calls when it starts, such as one that creates the
	// tables unless they are there. It is called by several goroutines at once. Nil means
	// that the store needs no such thing.
	Setup func(context.Context) error

	// Evict makes the store drop everything that it may under memory pressure. It
	// returns when the store answers. Only package endurance uses it.
	Evict func()
}

// Op is a kind of request, for [Harness].DropReply.
type Op uint8

// The kinds of request.
const (
	OpAcquire Op = iota // what Session.Acquire sends first
	OpRenew             // what Session.Renew sends
	OpRelease           // what Session.Release sends
)

// String returns the name of the kind.
func (o Op) String() string {
	switch o {
	case OpAcquire:
		return "acquire"
	case OpRenew:
		return "renew"
	case OpRelease:
		return "release"
	}
	return "unknown"
}

// Run runs every check, each as a subtest of t that is named after the promise
// it tests. If the driver's sessions are a [driver.Prompt], the subtest Promptly runs
// most of them once more by its methods. newHarness is called once for each and gets that subtest's t.
//
// Most checks run in parallel with each other, and their keys are random.
// Harnesses may therefore share one store, as long as the faults that one makes
// are not felt through another; those with Restart or Wipe need their own.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.start(t, newHarness) })
	}
	t.Run("Promptly", func(t *testing.T) { runPromptly(t, newHarness, check.start) })
}
