package cachetest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// Harness is a store made for one check. Only Store is required; a check that needs
// something which is nil is skipped and names it. The functions are called from the
// check's own goroutine and fail the test if they cannot do their work.
type Harness struct {
	// Store is the store under test.
	Store cache.Store

	// Peer has the same entries as Store and stands for another process. Nil means that
	// Store serves for that too.
	Peer cache.Store

	// Settle waits until Store and Peer have heard of all that was done by the other.
	// Nil means that there is nothing to wait for: each sees at once what the other
	// has done.
	Settle func()

	// Forget has the store lose all that it has, as a restart does.
	Forget func()

	// LoseReply loses the reply to the next request of Store, after it was carried
	// out. The function returned tells whether that has happened.
	LoseReply func() (lost func() bool)
}

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

var (
	aPeer      = need{"Harness.Peer", func(h *Harness) bool { return h.Peer != nil }}
	forgetting = need{"Harness.Forget", func(h *Harness) bool { return h.Forget != nil }}
	losing     = need{"Harness.LoseReply", func(h *Harness) bool { return h.LoseReply != nil }}
)

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

// Long is the ttl of what does not end during a check, short of what does.
const (
	long  = time.Hour
	short = 60 * time.Millisecond
)

// fixture is what one check works on.
type fixture struct {
	t *testing.T
	h *Harness
	handle
	key string
}

// handle is a process's way to the entries.
type handle struct {
	t     *testing.T
	store cache.Store
}

func newFixture(t *testing.T, h *Harness) *fixture {
	return &fixture{t: t, h: h, handle: handle{t, h.Store}, key: "cachetest:" + rand.Text()}
}

// peer is another process.
func (f *fixture) peer() handle {
	if f.h.Peer == nil {
		return f.handle
	}
	return handle{f.t, f.h.Peer}
}

func (f *fixture) settle() {
	if f.h.Settle != nil {
		f.h.Settle()
	}
}

func (h handle) get(key string) cache.Entry {
	h.t.Helper()
	e, err := h.store.Get(h.t.Context(), key)
	if err != nil {
		h.t.Fatalf("get: %v", err)
	}
	h.sane(e)
	return e
}

// sane fails the check if an entry is neither nothing nor something.
func (h handle) sane(e cache.Entry) {
	h.t.Helper()
	if (e.Value == nil) != (e.Left == 0) || e.Left < 0 {
		h.t.Errorf("an entry has the value %.20q and %v left; want nil and 0, or both", e.Value, e.Left)
	}
}

func (h handle) claim(key string, token int64, ttl time.Duration) cache.Entry {
	h.t.Helper()
	e, err := h.store.Claim(h.t.Context(), key, token, ttl)
	if err != nil {
		h.t.Fatalf("claim of %d: %v", token, err)
	}
	h.sane(e)
	return e
}

func (h handle) mustBeSuperseded(key string, token int64) {
	h.t.Helper()
	if e, err := h.store.Claim(h.t.Context(), key, token, long); !errors.Is(err, cache.ErrSuperseded) || e.Value != nil {
		h.t.Errorf("claim of %d: %.20q, %v; want cache.ErrSuperseded", token, e.Value, err)
	}
}

func (h handle) put(key string, token int64, value string, ttl time.Duration) bool {
	h.t.Helper()
	stored, err := h.store.Put(h.t.Context(), key, token, []byte(value), ttl)
	if err != nil {
		h.t.Fatalf("put of %d: %v", token, err)
	}
	return stored
}

func (h handle) mustPut(key string, token int64, value string, ttl time.Duration) {
	h.t.Helper()
	if !h.put(key, token, value, ttl) {
		h.t.Fatalf("put of %d is refused; want it stored", token)
	}
}

func (h handle) mustNotPut(key string, token int64, value string) {
	h.t.Helper()
	if h.put(key, token, value, long) {
		h.t.Errorf("put of %d is stored; want it refused", token)
	}
}

// load claims and puts.
func (h handle) load(key string, token int64, value string, ttl time.Duration) {
	h.t.Helper()
	h.claim(key, token, long)
	h.mustPut(key, token, value, ttl)
}

func (h handle) invalidate(key string) {
	h.t.Helper()
	if err := h.store.Invalidate(h.t.Context(), key); err != nil {
		h.t.Fatalf("invalidate: %v", err)
	}
}

func (h handle) mustHave(key, want string) {
	h.t.Helper()
	if e := h.get(key); e.Value == nil || !bytes.Equal(e.Value, []byte(want)) {
		h.t.Errorf("get: %.20q; want %.20q", e.Value, want)
	}
}

func (h handle) mustHaveNone(key string) {
	h.t.Helper()
	if e := h.get(key); e.Value != nil {
		h.t.Errorf("get: %.20q; want nothing", e.Value)
	}
}

// checks is every check of the suite, in the order of the contract.
var checks = slices.Concat(
	valueChecks,
	claimChecks,
	invalidationChecks,
	lifetimeChecks,
	failureChecks,
	[]check{
		{"RandomStepsGoAsInTheModel", nil, testModel},
		{"NothingOlderIsReadThanWasInvalidated", nil, testFreshness},
	},
)
