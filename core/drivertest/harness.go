package drivertest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
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

// check tests one promise.
type check struct {
	name  string
	needs []need
	test  func(*fixture)
}

// need is an ability of the harness, or of the driver, that a check works with.
type need struct {
	what  string
	fault bool // keeps the store from answering
	met   func(*fixture) bool
}

var (
	stalling      = need{"Harness.Stall", true, func(f *fixture) bool { return f.h.Stall != nil }}
	refusing      = need{"Harness.Refuse", true, func(f *fixture) bool { return f.h.Refuse != nil }}
	dropping      = need{"Harness.DropReply", true, func(f *fixture) bool { return f.h.DropReply != nil }}
	delaying      = need{"Harness.DelayReplies", false, func(f *fixture) bool { return f.h.DelayReplies != nil }}
	losing        = need{"Harness.LosePushes", false, func(f *fixture) bool { return f.h.LosePushes != nil }}
	restarting    = need{"Harness.Restart", true, func(f *fixture) bool { return f.h.Restart != nil }}
	wiping        = need{"Harness.Wipe", true, func(f *fixture) bool { return f.h.Wipe != nil }}
	settingUp     = need{"Harness.Setup", false, func(f *fixture) bool { return f.h.Setup != nil }}
	aWayPast      = need{"Harness.Peer", false, func(f *fixture) bool { return f.h.Peer != nil }}
	issuingTokens = need{"Capabilities.Tokens", false, func(f *fixture) bool { return f.caps.Tokens != driver.NoTokens }}
	following     = need{"Capabilities.After", false, func(f *fixture) bool { return f.caps.After }}
	writing       = need{"Capabilities.Written", false, func(f *fixture) bool { return f.caps.Written }}
	keeping       = need{"Capabilities.Keep", false, func(f *fixture) bool { return f.caps.Keep }}
	recalling     = need{"Capabilities.Recall", false, func(f *fixture) bool { return f.caps.Recall }}
	ousting       = need{"Capabilities.Oust", false, func(f *fixture) bool { return f.caps.Oust }}
	queueing      = need{"a queue, without Capabilities.Unordered", false, func(f *fixture) bool { return !f.caps.Unordered }}
	strict        = need{"Capabilities.Strict", false, func(f *fixture) bool { return f.caps.Strict }}
	sharing       = offering(driver.Shared)
	permitting    = offering(driver.Semaphore)
)

// offering is the need of a mode.
func offering(m driver.Mode) need {
	return need{"Capabilities.Modes with " + m.String(), false, func(f *fixture) bool { return slices.Contains(f.caps.Modes, m) }}
}

// start runs the check beside others.
func (c check) start(t *testing.T, newHarness func(*testing.T) *Harness) {
	t.Parallel()
	machine := hiccups.Start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the machine has overslept by up to %v", machine.Worst())
		}
	})
	c.run(t, newHarness, machine)
}

// run runs the check on a machine that is measured, or in virtual time if it is nil.
func (c check) run(t *testing.T, newHarness func(*testing.T) *Harness, machine *hiccups.Meter) {
	h := newHarness(t)
	if h == nil || h.Driver == nil {
		t.Fatal("the harness has no Driver; one is required")
	}
	f := newFixture(t, h)
	f.machine = machine
	if slices.ContainsFunc(c.needs, func(n need) bool { return n.fault }) {
		f.timeout = faultTimeout
	}
	if !slices.Contains(f.caps.Modes, driver.Exclusive) && c.name != checks[0].name {
		t.Skip("the driver does not offer exclusive leases")
	}
	if missing := c.missing(f); len(missing) > 0 {
		t.Skipf("needs %s", strings.Join(missing, " and "))
	}
	c.test(f)
}

// missing names what the check needs and does not have.
func (c check) missing(f *fixture) []string {
	var missing []string
	for _, n := range c.needs {
		if !n.met(f) {
			missing = append(missing, n.what)
		}
	}
	return missing
}

func needs(n ...need) []need { return n }

// checks is every check of the suite, in the order of the contract.
var checks = slices.Concat(
	basicChecks,
	exclusionChecks,
	ownerChecks,
	releaseChecks,
	renewalChecks,
	expiryChecks,
	tokenChecks,
	deadlineChecks,
	silenceChecks,
	refusalChecks,
	withdrawalChecks,
	wakeChecks,
	replaceChecks,
	afterChecks,
	contentionChecks,
	boundChecks,
	keepChecks,
	modeChecks,
	roomChecks,
	lowerChecks,
	oustChecks,
	identityChecks,
	keyChecks,
	listChecks,
	setupChecks,
	closingChecks,
	promptChecks,
	promptAllChecks,
	gossipChecks,
)
