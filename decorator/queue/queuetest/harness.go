package queuetest

import (
	"cmp"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// Long is the time of what does not end during a check, short of what does.
const (
	long  = time.Hour
	short = 60 * time.Millisecond
)

// fixture is what one check works on.
type fixture struct {
	t    *testing.T
	h    *Harness
	name string // of the queue
	key  string
}

func newFixture(t *testing.T, h *Harness) *fixture {
	return &fixture{t: t, h: h, name: "queuetest-" + rand.Text(), key: "queuetest:" + rand.Text()}
}

// rules are those of a queue of which a check says no more.
func rules(change ...func(*queue.Rules)) queue.Rules {
	r := queue.Rules{Attempts: 5, MaxLength: 100, KeepFor: long, KeepCount: 1000}
	for _, c := range change {
		c(&r)
	}
	return r
}

func spaced(d time.Duration) func(*queue.Rules) { return func(r *queue.Rules) { r.Spacing = d } }
func attempts(n int) func(*queue.Rules)         { return func(r *queue.Rules) { r.Attempts = n } }
func onDead(o queue.OnDead) func(*queue.Rules)  { return func(r *queue.Rules) { r.OnDead = o } }
func kept(d time.Duration, n int) func(*queue.Rules) {
	return func(r *queue.Rules) { r.KeepFor, r.KeepCount = d, n }
}

func maxLength(n int) func(*queue.Rules)                    { return func(r *queue.Rules) { r.MaxLength = n } }
func (f *fixture) open(change ...func(*queue.Rules)) handle { return f.openIn(f.h.Store, change) }

// peer is another process.
func (f *fixture) peer(change ...func(*queue.Rules)) handle {
	if f.h.Peer == nil {
		return f.open(change...)
	}
	return f.openIn(f.h.Peer, change)
}

func (f *fixture) openIn(s queue.Store, change []func(*queue.Rules)) handle {
	f.t.Helper()
	q, err := s.Open(f.name, rules(change...))
	if err != nil {
		f.t.Fatalf("open: %v", err)
	}
	return handle{f.t, q, f.key}
}

// handle is a process's way to a queue, and the key that most of a check is about.
type handle struct {
	t   *testing.T
	q   queue.Queue
	key string
}

// on is the same handle for another key.
func (h handle) on(key string) handle { h.key = key; return h }

func (h handle) append(ids ...string) (last queue.Place) {
	h.t.Helper()
	for _, id := range ids {
		p, err := h.q.Append(h.t.Context(), h.key, queue.New{ID: id, Payload: []byte("payload of " + id)})
		if err != nil {
			h.t.Fatalf("append %q: %v", id, err)
		}
		last = p
	}
	return last
}

func (h handle) holder(token int64) queue.Holder {
	return queue.Holder{Key: h.key, Token: token, Worker: "worker", For: long}
}

func (h handle) step(token int64) queue.Step {
	h.t.Helper()
	s, err := h.q.Begin(h.t.Context(), h.holder(token))
	if err != nil {
		h.t.Fatalf("begin with %d: %v", token, err)
	}
	return s
}

// begin begins the item of that ID.
func (h handle) begin(token int64, id string, attempt int) queue.Item {
	h.t.Helper()
	return h.is(h.step(token), id, attempt)
}

// is fails the check unless a step has begun the item.
func (h handle) is(s queue.Step, id string, attempt int) queue.Item {
	h.t.Helper()
	if s.Item == nil {
		h.t.Fatalf("no item was begun (%+v); want %q", s, id)
	}
	if want := "payload of " + id; string(s.Item.Payload) != want || s.Item.Attempt != attempt {
		h.t.Fatalf("attempt %d with %.40q was begun; want attempt %d with %q", s.Item.Attempt, s.Item.Payload, attempt, want)
	}
	return *s.Item
}

// none fails the check if a step has begun an item.
func (h handle) none(s queue.Step) queue.Step {
	h.t.Helper()
	if s.Item != nil {
		h.t.Fatalf("attempt %d with %.40q was begun; want none", s.Item.Attempt, s.Item.Payload)
	}
	return s
}

func (h handle) mustNotBegin(token int64) {
	h.t.Helper()
	if s, err := h.q.Begin(h.t.Context(), h.holder(token)); !errors.Is(err, queue.ErrSuperseded) {
		h.t.Errorf("begin with %d: %+v, %v; want queue.ErrSuperseded", token, s, err)
	}
}

func ending(i queue.Item, o queue.Outcome) queue.Ending {
	return queue.Ending{Sequence: i.Sequence, Attempt: i.Attempt, Outcome: o}
}

func (h handle) end(token int64, e queue.Ending) queue.Step {
	h.t.Helper()
	s, err := h.q.End(h.t.Context(), h.holder(token), e)
	if err != nil {
		h.t.Fatalf("end with %d: %v", token, err)
	}
	return s
}

func (h handle) mustNotEnd(token int64, e queue.Ending) {
	h.t.Helper()
	if s, err := h.q.End(h.t.Context(), h.holder(token), e); !errors.Is(err, queue.ErrSuperseded) {
		h.t.Errorf("end with %d: %+v, %v; want queue.ErrSuperseded", token, s, err)
	}
}

func (h handle) done(token int64, i queue.Item) queue.Step {
	h.t.Helper()
	return h.end(token, ending(i, queue.Done))
}

func (h handle) claim(r queue.ClaimRequest) queue.Claims {
	h.t.Helper()
	if r.For == 0 {
		r.For = long
	}
	if r.Worker == "" {
		r.Worker = "worker"
	}
	c, err := h.q.Claim(h.t.Context(), r)
	if err != nil {
		h.t.Fatalf("claim: %v", err)
	}
	if len(c.Keys) > r.Max {
		h.t.Fatalf("claim names %d keys; want at most %d", len(c.Keys), r.Max)
	}
	return c
}

// claimAll claims in every shard, and returns the keys in order.
func (h handle) claimAll(r queue.ClaimRequest) (keys []string) {
	h.t.Helper()
	for r.Shard = range h.q.Shards() {
		keys = append(keys, h.claim(r).Keys...)
	}
	slices.Sort(keys)
	return keys
}

// mustClaim fails the check unless exactly these keys are due.
func (h handle) mustClaim(worker string, want ...string) {
	h.t.Helper()
	slices.Sort(want)
	if got := h.claimAll(queue.ClaimRequest{Worker: worker, Max: 100}); !slices.Equal(got, want) {
		h.t.Errorf("claimed %q; want %q", got, want)
	}
}

func (h handle) status(id string) queue.Status {
	h.t.Helper()
	s, err := h.q.Status(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("status: %v", err)
	}
	return s
}

func (h handle) mustBe(id string, want queue.State) queue.Status {
	h.t.Helper()
	s := h.status(id)
	if s.State != want {
		h.t.Errorf("the item is %v; want %v", s.State, want)
	}
	if ended := want == queue.Ended || want == queue.GivenUp; ended == s.Ended.IsZero() {
		h.t.Errorf("the item is %v, and ended at %v", s.State, s.Ended)
	}
	return s
}

func (h handle) mustBeUnknown(id string) {
	h.t.Helper()
	if s, err := h.q.Status(h.t.Context(), id); !errors.Is(err, queue.ErrUnknown) {
		h.t.Errorf("status: %+v, %v; want queue.ErrUnknown", s, err)
	}
}

// until waits for something that time brings, which it asks for every few milliseconds.
func (f *fixture) until(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			f.t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
