package queuetest

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Harness is a store made for one check. Only Store is required; a check that needs
// something which is nil is skipped and names it. The functions are called from the
// check's own goroutine and fail the test if they cannot do their work.
type Harness struct {
	// Store is the store under test.
	Store queue.Store

	// Peer has the same queues as Store and stands for another process. Nil means that
	// Store serves for that too.
	Peer queue.Store

	// LoseReply loses the reply to the next request of Store, after it was carried
	// out. The function returned tells whether that has happened.
	LoseReply func() (lost func() bool)

	// MaxPayload is how many bytes a payload may have, if the store takes fewer than
	// queue.MaxPayload. Zero is queue.MaxPayload.
	MaxPayload int
}

// maxPayload is MaxPayload or its default.
func (h *Harness) maxPayload() int { return cmp.Or(h.MaxPayload, queue.MaxPayload) }

// Run runs every check, in parallel with each other. newHarness is called once for each
// and gets that subtest's t.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, newHarness)
		})
	}
}

// RunInBubble is [Run] for a store in the memory of this process, whose time goes by
// package testing/synctest: each check, with its harness, has a bubble of its own, where
// waiting takes no time. Goroutines of the store end by t.Cleanup.
func RunInBubble(t *testing.T, newHarness func(t *testing.T) *Harness) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, newHarness) })
		})
	}
}

// check tests one promise.
type check struct {
	name  string
	needs []need
	test  func(*fixture)
}

// need is what a check needs of the harness.
type need struct {
	what string
	met  func(*Harness) bool
}

var losing = need{"Harness.LoseReply", func(h *Harness) bool { return h.LoseReply != nil }}

func needs(n ...need) []need { return n }

func (c check) run(t *testing.T, newHarness func(*testing.T) *Harness) {
	h := newHarness(t)
	if h == nil || h.Store == nil {
		t.Fatal("the harness has no Store; one is required")
	}
	var missing []string
	for _, n := range c.needs {
		if !n.met(h) {
			missing = append(missing, n.what)
		}
	}
	if missing != nil {
		t.Skipf("needs %s", strings.Join(missing, " and "))
	}
	c.test(newFixture(t, h))
}

// checks is every check of the suite, in the order of the contract.
var checks = slices.Concat(
	appendChecks,
	claimChecks,
	beginChecks,
	endChecks,
	deathChecks,
	spacingChecks,
	keepingChecks,
	listenChecks,
	failureChecks,
	[]check{{"NothingIsLostOrOutOfOrder", nil, testWorkload}},
)
