package core

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// KeyState is what the store says of a key.
type KeyState struct {
	Key       string        // the key that was asked about, without the namespace
	Held      bool          // whether anybody holds the key
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
	NodeUnknown        = driver.NodeUnknown        // the node has not been asked yet
	NodeUp             = driver.NodeUp             // the node answers
	NodeSlow           = driver.NodeSlow           // the node answers late, or has just missed an answer or two
	NodeDown           = driver.NodeDown           // the node cannot be connected to, refuses, or has missed more
	NodeRestartedEmpty = driver.NodeRestartedEmpty // the node has lost its data, and leases that it had voted for may still run
)

// Holder is one lease of a key: of a caller, or of a process whose callers share it
// or hand it on.
type Holder struct {
	Mode  Mode // how the key is held
	Limit int  // of a Semaphore; 0 for other modes

	// Token is the fencing token of the first who held on the lease. Those who
	// followed within the process have the next ones, at most 1023 more.
	Token int64

	Since     time.Time     // when it was granted, by the store's clock
	Remaining time.Duration // until it ends unless it is renewed
	Kept      bool          // released, and taken by nobody until MinHold has passed

	// Identity is what the process that took the lease is called: see [WithIdentity]. It is
	// empty if Kept, if the driver cannot store it, and for a process of a release that did
	// not store it yet. It is read from the store, and whoever may write there can make it
	// say anything; but it never has other characters than an identity.
	Identity string

	// TraceID and SpanID name the span of the acquisition that took the lease: of the first
	// caller, if callers of a process share it or hand it on. They are zero if Kept, if that
	// acquisition was not sampled, and if the driver cannot store them.
	TraceID trace.TraceID
	SpanID  trace.SpanID
}

// Inspect asks the store who holds a literal key and how many wait for it, for a
// person or a tool to look at: it may have changed by the time that the answer is
// here. It changes nothing. The error is an [*Error] around ErrUnavailable, ErrKey,
// ErrClosed or ctx's error.
func (e *Engine) Inspect(ctx context.Context, key string) (KeyState, error) {
	const op = "inspect"
	if err := e.misused(ctx, op, ""); err != nil {
		return KeyState{}, err
	}
	if err := e.checkKey(op, key); err != nil {
		return KeyState{}, err
	}
	st, r := e.state(ctx, key)
	if r != nil {
		return KeyState{}, e.refused(op, "", r)
	}
	out := KeyState{Key: key, Held: st.Held, Token: e.queue.Token(st.Token), Remaining: st.Remaining, Waiting: st.Waiting, Nodes: st.Nodes}
	for _, h := range st.Holders {
		to := Holder{
			Mode: h.Mode, Limit: h.Limit, Token: e.queue.Token(h.Token), Since: h.Since, Remaining: h.Remaining, Kept: h.Kept,
			Identity: shown(h.Identity),
		}
		to.TraceID, to.SpanID = spanOf(h.Origin)
		out.Holders = append(out.Holders, to)
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
// repeated: who held by then loses the key. It is logged and traced, without the key; the log
// names who asked for it, see [WithOperator].
func (e *Engine) ForceRelease(ctx context.Context, key string) (token int64, err error) {
	const op = "force-release"
	if err := e.misused(ctx, op, ""); err != nil {
		return 0, err
	}
	switch {
	case !e.force:
		return 0, e.failure(op, "", ErrPolicy).because("it takes locks from their holders, which is off; pass core.WithForceRelease() to core.New")
	case !e.caps.Oust:
		return 0, e.failure(op, "", ErrPolicy).because("%s", e.lacks(func(c driver.Capabilities) bool { return c.Oust }))
	}
	if err := e.checkKey(op, key); err != nil {
		return 0, err
	}
	ctx, sp := e.signals.Operation(ctx, op)
	outcome := signals.Failed
	defer func() { sp.End(outcome) }()
	st, r := e.state(ctx, key)
	if r == nil && st.Token != 0 {
		r = e.queue.Ask(ctx, func(ctx context.Context, s driver.Session) error { return s.Oust(ctx, e.prefix+key, st.Token) })
	}
	outcome = r.Outcome(signals.Released)
	if r != nil || st.Token == 0 {
		return 0, e.refused(op, "", r)
	}
	e.queue.Drop(e.prefix+key, st.Token)
	token = e.queue.Token(st.Token + 1)
	sp.Token(token)
	about := []any{"lock.driver", e.caps.Name, "lock.token", token, "lock.holders", len(st.Holders), "lock.waiting", st.Waiting}
	if who, ok := ctx.Value(operatorKey{}).(string); ok {
		about = append(about, "lock.operator", who)
	}
	e.log().Warn("lockaround: a lock was released by force", about...)
	return token, nil
}

type operatorKey struct{}

// WithOperator returns a context that says who asks for [Engine.ForceRelease], for its log: the
// name by which your authentication knows an operator. It decides nothing.
func WithOperator(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, operatorKey{}, who)
}

// checkKey returns the error of an operation on something that cannot be a key.
func (e *Engine) checkKey(op, key string) error {
	if len(key) == 0 || len(key) > MaxKeyLength {
		return e.failure(op, "", ErrKey).because("the key has %d bytes; 1 to %d are possible", len(key), MaxKeyLength)
	}
	return nil
}

// state asks the store about a key.
func (e *Engine) state(ctx context.Context, key string) (st driver.State, r *queue.Refusal) {
	r = e.queue.Ask(ctx, func(ctx context.Context, s driver.Session) (err error) {
		st, err = s.Inspect(ctx, e.prefix+key)
		return err
	})
	return st, r
}
