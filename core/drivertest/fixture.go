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
