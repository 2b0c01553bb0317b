package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// KeyState is what the store says of a key.
type KeyState struct {
	Held      bool
	Token     int64         // of the latest grant's first holder; 0 if the store knows of none
	Remaining time.Duration // until the key is free unless a lease is renewed; 0 if it is free
	Waiting   int           // places in the store's queue: processes, or callers under Strict
	Holders   []Holder      // leases; empty if the key is free or the driver cannot tell
	Nodes     []Node        // of a store that has several independent ones, such as redlock's; else nil
}

// Node is one server of a store that has several, as it was last seen.
type Node = driver.Node

// Condition is what a node was last seen to be.
type Condition = driver.Condition

// The conditions of nodes.
const (
	NodeUnknown        = driver.NodeUnknown        // not asked yet
	NodeUp             = driver.NodeUp             // it answers
	NodeSlow           = driver.NodeSlow           // it answers late, or has just missed an answer or two
	NodeDown           = driver.NodeDown           // it cannot be connected to, refuses, or has missed more
	NodeRestartedEmpty = driver.NodeRestartedEmpty // it has lost its data, and leases that it had voted for may still run
)

// Holder is one lease of a key: of a caller, or of a process whose callers share it
// or hand it on.
type Holder struct {
	Mode  Mode
	Limit int // of a Semaphore

	// Token is the fencing token of the first who held on the lease. Those who
	// followed within the process have the next ones, at most 1023 more.
	Token int64

	Since     time.Time     // when it was granted, by the store's clock
	Remaining time.Duration // until it ends unless it is renewed
	Kept      bool          // released, and taken by nobody until MinHold has passed
}

// Inspect asks the store who holds a literal key and how many wait for it, for a
// person or a tool to look at: it may have changed by the time that the answer is
// here. It changes nothing. The error is an [*Error] around ErrUnavailable, ErrKey,
// ErrClosed or ctx's error.
func (e *Engine) Inspect(ctx context.Context, key string) (KeyState, error) {
	st, err := e.inspect(ctx, "inspect", key)
	if err != nil {
		return KeyState{}, err
	}
	out := KeyState{Held: st.Held, Token: e.tokenOf(st.Token), Remaining: st.Remaining, Waiting: st.Waiting, Nodes: st.Nodes}
	for _, h := range st.Holders {
		out.Holders = append(out.Holders, Holder{h.Mode, h.Limit, e.tokenOf(h.Token), h.Since, h.Remaining, h.Kept})
	}
	return out, nil
}

// ForceRelease takes a literal key from whoever holds it, and lets in who waits. Those
// who held it are told that they have lost it, as far as they can be reached; they may
// be at work still. So it returns a fencing token that is larger than theirs and no
// larger than that of any later holder: give it to whatever guards the resource, and
// their late writes fail from then on. It is 0 if the key has never been held.
//
// It is refused with ErrPolicy unless the engine was made [WithForceRelease], and if
// the driver cannot do it. With any other error it may have happened, and may be
// repeated: who held by then loses the key. It is logged and traced, without the key.
func (e *Engine) ForceRelease(ctx context.Context, key string) (token int64, err error) {
	const op = "force-release"
	if err := e.misused(ctx, op); err != nil {
		return 0, err
	}
	switch {
	case !e.force:
		return 0, e.failure(op, "", ErrPolicy).because("it takes locks from their holders, which is off; pass core.WithForceRelease() to core.New")
	case !e.caps.Oust:
		return 0, e.failure(op, "", ErrPolicy).because("%s", e.lacks(func(c driver.Capabilities) bool { return c.Oust }))
	}
	sctx, sp := e.signals.Operation(ctx, op)
	defer func() { sp.End(outcome(err, signals.Released)) }()
	st, err := e.inspect(sctx, op, key)
	if err != nil || st.Token == 0 {
		return 0, err
	}
	err = e.asking(sctx, op, func(ctx context.Context) error { return e.session.Oust(ctx, e.prefix+key, st.Token) })
	if err != nil {
		return 0, err
	}
	e.drop(e.prefix+key, st.Token)
	token = e.tokenOf(st.Token + 1)
	sp.Token(token)
	e.log().Warn("lockaround: a lock was released by force", "lock.driver", e.caps.Name, "lock.token", token, "lock.holders", len(st.Holders), "lock.waiting", st.Waiting)
	return token, nil
}

// tokenOf is the first fencing token on a grant of the store; 0 if there was none.
func (e *Engine) tokenOf(granted int64) int64 {
	if granted == 0 {
		return 0
	}
	return (granted + e.tokensAfter) * block
}

// drop loses the leases of a key up to a token, which the store has ended: its push comes
// later, or never.
func (e *Engine) drop(key string, upTo int64) {
	sh := e.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	lk := sh.locks[key]
	if lk == nil {
		return
	}
	var over []*tenure // losing one changes what is gone through
	for ln := lk.lines; ln != nil; ln = ln.next {
		for tn := ln.tenures; tn != nil; tn = tn.next {
			if tn.Token <= upTo {
				over = append(over, tn)
			}
		}
	}
	for _, tn := range over {
		if tn.current() {
			tn.line.lose(tn)
		}
	}
}

func (e *Engine) inspect(ctx context.Context, op, key string) (st driver.State, err error) {
	if err := e.misused(ctx, op); err != nil {
		return st, err
	}
	if len(key) == 0 || len(key) > MaxKeyLength {
		return st, e.failure(op, "", ErrKey).because("the key has %d bytes; 1 to %d are possible", len(key), MaxKeyLength)
	}
	err = e.asking(ctx, op, func(ctx context.Context) (err error) {
		st, err = e.session.Inspect(ctx, e.prefix+key)
		return err
	})
	return st, err
}

// asking calls do with a context that ends with the store's time, and says what its
// error is.
func (e *Engine) asking(ctx context.Context, op string, do func(context.Context) error) error {
	if err := e.misused(ctx, op); err != nil {
		return err
	}
	if e.life.isClosed() {
		return e.failure(op, "", ErrClosed)
	}
	sctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	err := do(sctx)
	e.heard(ctx, err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return e.overdue(ctx, op, "")
	case errors.Is(err, driver.ErrClosed):
		return e.failure(op, "", ErrClosed)
	}
	return e.unavailable(op, "", err)
}
