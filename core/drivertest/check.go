package drivertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// check tests one promise.
type check struct {
	name  string
	needs []need
	test  func(*fixture)
}

// need is an ability of the harness, or of the driver, that a check works with.
type need struct {
	what string
	met  func(*fixture) bool
}

var (
	stalling      = need{"Harness.Stall", func(f *fixture) bool { return f.h.Stall != nil }}
	dropping      = need{"Harness.DropReply", func(f *fixture) bool { return f.h.DropReply != nil }}
	delaying      = need{"Harness.DelayReplies", func(f *fixture) bool { return f.h.DelayReplies != nil }}
	losing        = need{"Harness.LosePushes", func(f *fixture) bool { return f.h.LosePushes != nil }}
	restarting    = need{"Harness.Restart", func(f *fixture) bool { return f.h.Restart != nil }}
	wiping        = need{"Harness.Wipe", func(f *fixture) bool { return f.h.Wipe != nil }}
	aWayPast      = need{"Harness.Peer", func(f *fixture) bool { return f.h.Peer != nil }}
	issuingTokens = need{"Capabilities.Tokens", func(f *fixture) bool { return f.caps.Tokens != driver.NoTokens }}
	keeping       = need{"Capabilities.Keep", func(f *fixture) bool { return f.caps.Keep }}
	recalling     = need{"Capabilities.Recall", func(f *fixture) bool { return f.caps.Recall }}
	ousting       = need{"Capabilities.Oust", func(f *fixture) bool { return f.caps.Oust }}
	strict        = need{"Capabilities.Strict", func(f *fixture) bool { return f.caps.Strict }}
	sharing       = offering(driver.Shared)
	permitting    = offering(driver.Semaphore)
)

// offering is the need of a mode.
func offering(m driver.Mode) need {
	return need{"Capabilities.Modes with " + m.String(), func(f *fixture) bool { return slices.Contains(f.caps.Modes, m) }}
}

func (c check) start(t *testing.T, newHarness func(*testing.T) *Harness) {
	t.Parallel()
	h := newHarness(t)
	if h == nil || h.Driver == nil {
		t.Fatal("the harness has no Driver; one is required")
	}
	f := newFixture(t, h)
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
	withdrawalChecks,
	wakeChecks,
	replaceChecks,
	contentionChecks,
	keepChecks,
	modeChecks,
	roomChecks,
	lowerChecks,
	oustChecks,
	keyChecks,
	closingChecks,
	promptChecks,
)
