package drivertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
)

// fixture is what one check works on.
type fixture struct {
	t    *testing.T
	h    *Harness
	caps driver.Capabilities

	machine *hiccups.Meter // nil if time is virtual
	timeout time.Duration  // of each attempt to reach the store

	key      string // random, so that checks may share a store
	observer *process
}

func newFixture(t *testing.T, h *Harness) *fixture {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails: crypto/rand ends the program instead
	return &fixture{t: t, h: h, caps: h.Driver.Capabilities(), timeout: storeTimeout, key: "drivertest:" + hex.EncodeToString(salt[:])}
}

// process opens a session that stands for a process.
func (f *fixture) process() *process {
	f.t.Helper()
	return f.open(f.h.Driver, f.timeout)
}

// peer opens a session that no fault but Restart and Wipe touches.
func (f *fixture) peer() *process {
	f.t.Helper()
	if f.h.Peer == nil {
		return f.process()
	}
	return f.open(f.h.Peer, f.timeout)
}

func (f *fixture) open(d driver.Driver, timeout time.Duration) *process {
	f.t.Helper()
	return f.openAs(d, timeout, "")
}

// openAs opens a session of that name.
func (f *fixture) openAs(d driver.Driver, timeout time.Duration, identity string) *process {
	f.t.Helper()
	sink := newSink()
	s, err := d.Open(driver.Config{Sink: sink, StoreTimeout: timeout, Identity: identity})
	if err != nil {
		f.t.Fatalf("open a session: %v", err)
	}
	return f.adopt(s, sink)
}

// adopt closes the session when the check ends.
func (f *fixture) adopt(s driver.Session, sink *sink) *process {
	f.t.Helper()
	p := &process{f: f, s: s, sink: sink}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), promptness)
		defer cancel()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = s.Close(ctx) // a store that a check has stopped may have kept it from its work
		}()
		await(f, promptness+grace+Slack, "closing a session", closed)
	})
	return p
}

// places is how many places Inspect says if n sessions wait.
func (f *fixture) places(n int) int {
	if f.caps.Unordered {
		return 0
	}
	return n
}

// state asks the store about a key.
func (f *fixture) state(key string) driver.State {
	f.t.Helper()
	st, _ := f.stateAt(key)
	return st
}

// stateAt also returns a time after the store's answer.
func (f *fixture) stateAt(key string) (driver.State, time.Time) {
	f.t.Helper()
	if f.observer == nil {
		f.observer = f.peer()
	}
	type answer struct {
		driver.State
		back time.Time
		err  error
	}
	ctx, s := f.prompt(), f.observer.s
	a := within(f, promptness+grace+Slack, "inspecting a key", func() answer {
		st, err := s.Inspect(ctx, key)
		return answer{st, time.Now(), err}
	})
	if a.err != nil {
		f.t.Fatalf("inspect: %v", a.err)
	}
	a.Nodes = nil // they are not the key's
	return a.State, a.back
}

// same reports whether two states are equal.
func same(a, b driver.State) bool { return reflect.DeepEqual(a, b) }

// free waits until nobody holds the key.
func (f *fixture) free(key string, limit time.Duration) {
	f.t.Helper()
	f.eventually(limit, "the key becoming free", func() bool { return !f.state(key).Held })
}

// owner returns an owner that nobody has used.
func owner() driver.Owner {
	var o driver.Owner
	_, _ = rand.Read(o[:]) // never fails, as above
	return o
}

// The abilities, each undone at the latest when the check ends.

func (f *fixture) stall() (resume func()) { return f.undone(f.h.Stall()) }

func (f *fixture) losePushes() (restore func()) { return f.undone(f.h.LosePushes()) }

func (f *fixture) delayReplies(d time.Duration) (restore func()) {
	return f.undone(f.h.DelayReplies(d))
}

func (f *fixture) undone(undo func()) func() {
	undo = sync.OnceFunc(undo)
	f.t.Cleanup(undo)
	return undo
}

// dropReply arms the loss of one reply; the function returned fails the check
// if none was lost, because it has then tested nothing.
func (f *fixture) dropReply(op Op) (wasDropped func()) {
	dropped := f.h.DropReply(op)
	return func() {
		f.t.Helper()
		if !dropped() {
			f.t.Fatalf("the harness did not drop the reply of %s, so nothing was tested", op)
		}
	}
}

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

// sink records what a session reports.
type sink struct {
	mu        sync.Mutex
	queued    map[driver.ID]chan struct{}
	contended map[driver.ID]chan bool
	lost      map[driver.ID]error
	holders   map[driver.ID]driver.Origin
	failures  map[driver.ID]error
}

func newSink() *sink {
	return &sink{
		queued:    make(map[driver.ID]chan struct{}),
		contended: make(map[driver.ID]chan bool),
		lost:      make(map[driver.ID]error),
		holders:   make(map[driver.ID]driver.Origin),
		failures:  make(map[driver.ID]error),
	}
}

// Waiting implements driver.Sink.
func (s *sink) Waiting(id driver.ID) {
	c := s.waiting(id)
	select {
	case c <- struct{}{}:
	default:
	}
}

// Contended implements driver.Sink.
func (s *sink) Contended(id driver.ID, waiting bool) {
	c := s.contention(id)
	select {
	case c <- waiting:
	default:
	}
}

// TakenBy implements driver.Follower.
func (s *sink) TakenBy(id driver.ID, holder driver.Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[id] = holder
}

// takenBy returns who was reported to hold the key that id waits for.
func (s *sink) takenBy(id driver.ID) driver.Origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[id]
}

// Failed implements driver.Hearer.
func (s *sink) Failed(id driver.ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[id] = err
}

// failure returns what a try of the Acquire of id was last reported to have come to.
func (s *sink) failure(id driver.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures[id]
}

// Lost implements driver.Sink.
func (s *sink) Lost(id driver.ID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[id] = cause
}

// waiting returns a channel that receives when id is reported as waiting.
func (s *sink) waiting(id driver.ID) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[id] == nil {
		s.queued[id] = make(chan struct{}, 1)
	}
	return s.queued[id]
}

// contention returns a channel that receives what is reported about id.
func (s *sink) contention(id driver.ID) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contended[id] == nil {
		s.contended[id] = make(chan bool, 64)
	}
	return s.contended[id]
}

// told reports whether the lease was reported as lost.
func (s *sink) told(id driver.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.lost[id]
	return ok
}

// losses returns how many leases were reported as lost.
func (s *sink) losses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}
