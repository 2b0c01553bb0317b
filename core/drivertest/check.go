package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
)

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
