package core

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/manager"
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
	out := KeyState{Key: key, Held: st.Held, Token: e.manager.Token(st.Token), Remaining: st.Remaining, Waiting: st.Waiting, Nodes: st.Nodes}
	for _, h := range st.Holders {
		to := Holder{
			Mode: h.Mode, Limit: h.Limit, Token: e.manager.Token(h.Token), Since: h.Since, Remaining: h.Remaining, Kept: h.Kept,
			Identity: shown(h.Identity),
		}
		to.TraceID, to.SpanID = spanOf(h.Origin)
		out.Holders = append(out.Holders, to)
	}
	return out, nil
}

// ForceRelease takes a literal key from whoever holds it, and lets in whoever waits. Those
// who held it are told that they have lost it, as far as they can be reached; they may
// be at work still. So it returns a fencing token that is larger than theirs and no
// larger than that of any later holder: give it to whatever guards the resource, and
// their late writes fail from then on. It is 0 if the key has never been held.
//
// It is refused with ErrPolicy unless the engine was made [WithForceRelease], and if
// the driver cannot do it. With any other error it may have happened, and may be
// repeated: who held by then loses the key; [Engine.ForceReleaseUpTo] spares them. It is
// logged and traced, without the key; the log names who asked for it, see [WithOperator].
func (e *Engine) ForceRelease(ctx context.Context, key string) (token int64, err error) {
	return e.forceRelease(ctx, key, math.MaxInt64)
}

// ForceReleaseUpTo is [Engine.ForceRelease] for a person who has seen who holds the key: it takes
// the key from holders whose fencing token is at most upTo, such as the largest of
// [KeyState].Holders then, and never from a later one. The store decides that. Where a process
// hands its lease on, who follows on the same lease loses it too.
//
// If a later holder has the key already, it does nothing and returns ErrNotHeld. If one comes
// meanwhile, that one keeps it. It may be repeated after an error.
func (e *Engine) ForceReleaseUpTo(ctx context.Context, key string, upTo int64) (token int64, err error) {
	return e.forceRelease(ctx, key, upTo)
}

func (e *Engine) forceRelease(ctx context.Context, key string, upTo int64) (token int64, err error) {
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
	last := st.Token
	if upTo < math.MaxInt64 && len(st.Holders) > 0 {
		last = slices.MaxFunc(st.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Token, b.Token) }).Token
	}
	if r == nil && e.manager.Token(last) > upTo {
		return 0, e.failure(op, "", ErrNotHeld).because("a later holder has the key, and keeps it; look again")
	}
	if r == nil && last != 0 {
		r = e.manager.Ask(ctx, func(ctx context.Context, s driver.Session) error { return s.Oust(ctx, e.prefix+key, last) })
	}
	outcome = r.Outcome(signals.Released)
	if r != nil || last == 0 {
		return 0, e.refused(op, "", r)
	}
	e.manager.Lose(e.prefix+key, last)
	if e.caps.LateTokens {
		// The leases that ended may have had larger tokens than it was known to have.
		if st, r = e.state(ctx, key); r != nil {
			return 0, e.refused(op, "", r)
		}
		last = max(last, st.Token-1)
	}
	token = e.manager.Token(last + 1)
	sp.Token(token)
	about := []any{"lock.driver", e.caps.Name, "lock.token", token, "lock.holders", len(st.Holders), "lock.waiting", st.Waiting}
	if e.settings.loggedKeys {
		about = append(about, "lock.key", key)
	}
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
func (e *Engine) state(ctx context.Context, key string) (st driver.State, r *manager.Refusal) {
	r = e.manager.Ask(ctx, func(ctx context.Context, s driver.Session) (err error) {
		st, err = s.Inspect(ctx, e.prefix+key)
		return err
	})
	return st, r
}

const (
	listedAtOnce    = 512 // keys that the store looks at, for one page
	inspectedAtOnce = 64
)

// Keys returns the keys in the engine's namespace that begin with prefix and are held or waited
// for, with what [Engine.Inspect] says of each. All of them begin with an empty prefix. Each key
// comes once, in no order. Keys that are taken or given back meanwhile may come or not.
//
// It is for a person or a tool: the loop asks the store for some hundred keys at a time, and
// then about each of them. What it costs ends with the loop.
//
// An error with a [KeyState].Key is about that key alone, such as one that somebody has
// overwritten, and the loop goes on if it is let. An error without a Key is the last. It is an
// [*Error] around ErrUnavailable, ErrClosed or ctx's error, or around ErrPolicy if the driver
// cannot list its keys.
func (e *Engine) Keys(ctx context.Context, prefix string) iter.Seq2[KeyState, error] {
	return func(yield func(KeyState, error) bool) {
		if err := e.misused(ctx, "list", ""); err != nil {
			yield(KeyState{}, err)
			return
		}
		told := make(map[string]bool)
		for after, last := "", false; !last; {
			page, err := e.list(ctx, e.prefix+prefix, after)
			if err != nil {
				yield(KeyState{}, err)
				return
			}
			for _, k := range e.inspectAll(ctx, page.Keys) {
				switch {
				case k.err != nil && !overwritten(k.err):
					yield(KeyState{}, k.err)
					return
				case told[k.Key] || k.err == nil && !k.Held && k.Waiting == 0:
					continue
				}
				told[k.Key] = true
				if !yield(k.KeyState, k.err) {
					return
				}
			}
			after, last = page.Next, page.Next == ""
		}
	}
}

// list asks the store for some keys, which have the engine's prefix.
func (e *Engine) list(ctx context.Context, prefix, after string) (page driver.Page, err error) {
	const op = "list"
	unable := false
	r := e.manager.Ask(ctx, func(ctx context.Context, s driver.Session) (err error) {
		lister, ok := s.(driver.Lister)
		if unable = !ok; unable {
			return nil
		}
		page, err = lister.List(ctx, prefix, after, listedAtOnce)
		return err
	})
	if unable {
		return page, e.failure(op, "", ErrPolicy).because("driver %s cannot list its keys; name one, and use Inspect", e.caps.Name)
	}
	return page, e.refused(op, "", r)
}

// inspected is a key of a page.
type inspected struct {
	KeyState
	err error
}

// inspectAll inspects keys with the engine's prefix, many at the same time.
func (e *Engine) inspectAll(ctx context.Context, keys []string) []inspected {
	all := make([]inspected, len(keys))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(inspectedAtOnce, len(keys)) {
		workers.Go(func() {
			for i := range next {
				key := strings.TrimPrefix(keys[i], e.prefix)
				all[i].KeyState, all[i].err = e.Inspect(ctx, key)
				all[i].Key = key
			}
		})
	}
	for i := range keys {
		next <- i
	}
	close(next)
	workers.Wait()
	return all
}

// overwritten reports whether the store answers, and has something under the key that it
// refuses to take for a lock, or that no engine could have locked.
func overwritten(err error) bool {
	var refused *driver.PermanentError
	return errors.As(err, &refused) || errors.Is(err, ErrKey)
}
