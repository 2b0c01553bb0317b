package core

import (
	"context"
	"fmt"
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Engine takes and keeps the locks of one process in one store. It is safe for
// concurrent use; make one per process and store, and close it at the end.
//
// Callers of one process that want the same key queue inside the engine, which
// asks the store once for all of them and hands a granted lease on from one to
// the next. It renews every lease in the background until it is released.
type Engine struct {
	settings
	caps    driver.Capabilities
	session driver.Session
	prompt  driver.Prompt // session, if it is one; otherwise nil
	pooled  driver.Pooled // the driver, if it is one; otherwise nil
	prefix  string        // of every key in the store
	signals *signals.Signals

	overrides *overrides // nil if there are none

	plans   sync.Map // of terms to *plan
	planned atomic.Int64

	seed     maphash.Seed
	shards   [64]shard
	renewer  renewer
	releaser releaser
	held     atomic.Int64

	outage  outage
	life    lifetime
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	calls   sync.WaitGroup // to the store, on behalf of lines
	workers sync.WaitGroup // the other goroutines
}

// shard is the lock and the index of a part of the keys.
type shard struct {
	mu    sync.Mutex
	locks map[string]*lock
	spare []*lock // for the next keys
	owners
}

// New returns an engine on a driver. It does no I/O: a store that is down shows
// in [Engine.Ping] and in the first acquisition. A nil driver, and a driver or an
// option that cannot work, is an [ErrPolicy].
func New(d driver.Driver, o ...Option) (*Engine, error) {
	if v := reflect.ValueOf(d); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: the driver is nil; pass memlock.New() or redislock.New(client)", ErrPolicy)
	}
	s, err := newSettings(o)
	if err != nil {
		return nil, err
	}
	e := &Engine{settings: s, caps: d.Capabilities(), seed: maphash.MakeSeed()}
	if s.tokensAfter > 0 && e.caps.Tokens != DurableTokens {
		return nil, fmt.Errorf("%w: WithTokensAfter: the tokens of driver %s are %s ones, and it is for durable ones; leave it out", ErrPolicy, e.caps.Name, e.caps.Tokens)
	}
	e.prefix = s.namespace + "/"
	if e.signals, err = signals.New(s.tracers, s.meterProvider(), e.caps.Name); err != nil {
		return nil, err
	}
	if e.overrides, err = e.newOverrides(s.configured); err != nil {
		return nil, err
	}
	for i := range e.shards {
		e.shards[i].locks = map[string]*lock{}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	if e.session, err = d.Open(driver.Config{Sink: events{e}, StoreTimeout: s.timeout}); err != nil {
		e.cancel()
		// It did no I/O: the error is about how the driver was made.
		refusal := e.failure("open", "", ErrPolicy).because("%v", err)
		refusal.Cause = err
		return nil, refusal
	}
	e.prompt, _ = e.session.(driver.Prompt)
	e.pooled, _ = d.(driver.Pooled)
	if s.namespace == "" {
		s.log().Warn("lockaround: no namespace; applications that share this store share its locks", "lock.driver", e.caps.Name)
	}
	e.renewer.init(e)
	e.releaser.init(e)
	e.workers.Go(e.renewer.run)
	e.workers.Go(e.releaser.run)
	return e, nil
}

// Acquire takes the lock of a literal key and returns its lease, which the
// caller must release. ctx bounds the acquisition only: when it ends later, the
// lease stays. It carries the leases that the caller holds already, see
// [LeaseFrom].
//
// The error is an [*Error] around ErrBusy, ErrTimeout, ErrUnavailable,
// ErrDeadlock, ErrClosed, ErrPolicy, ErrKey, or ctx's error.
func (e *Engine) Acquire(ctx context.Context, p Policy) (*Lease, error) {
	if err := e.misused(ctx, "acquire"); err != nil {
		return nil, err
	}
	pl, key, several, err := e.literal(p)
	if err != nil {
		return nil, err
	}
	return e.acquire(ctx, pl, key, several)
}

// Do takes the lock of a literal key, runs fn and releases the lock when fn
// returns, panics or exits its goroutine. If the lock cannot be had, fn does not
// run and the error is that of [Engine.Acquire].
//
// The context that fn gets is ctx with the lease in it, cancelled with the
// cause ErrLost, ErrMaxHold or ErrClosed if the lease ends before fn does. If it
// has, and fn returns nil, Do returns that error; otherwise fn's own.
func (e *Engine) Do(ctx context.Context, p Policy, fn func(context.Context) error) error {
	if err := e.misused(ctx, "do"); err != nil {
		return err
	}
	pl, key, several, err := e.literal(p)
	if err != nil {
		return err
	}
	return e.do(ctx, pl, key, several, fn)
}

// Ping reports whether the store answers and permits what the driver needs: use
// it for a readiness probe. The error is an [*Error] around ErrUnavailable,
// ErrClosed or ctx's error.
func (e *Engine) Ping(ctx context.Context) error {
	return e.asking(ctx, "ping", func(ctx context.Context) error { return e.session.Ping(ctx) })
}

// Uses reports whether the engine's driver reaches its store by way of pool, such as a
// *sql.DB. Calls that hold connections of a bounded pool while they use locks by way of the
// same one may wait for each other for ever.
func (e *Engine) Uses(pool any) bool { return e != nil && e.pooled != nil && e.pooled.Uses(pool) }

// misused returns the error of an operation without an engine or a context, or nil.
func (e *Engine) misused(ctx context.Context, op string) error {
	switch {
	case e == nil:
		return &Error{Op: op, Kind: ErrPolicy, Detail: nilEngine}
	case ctx == nil:
		return e.failure(op, "", ErrPolicy).because("the context is nil; use context.Background() where there is none")
	}
	return nil
}

const nilEngine = "the engine is nil; use the one that core.New returned"

// acquire takes the lock of a key, or of several: then key is empty. Keys have the
// engine's prefix from here on.
func (e *Engine) acquire(ctx context.Context, pl *plan, key string, several []string) (*Lease, error) {
	var l Lease
	if err := e.grant(ctx, holdingIn(ctx), pl, key, several, &l); err != nil {
		return nil, err
	}
	l.watch()
	return &l, nil
}

// grant is acquire for a lease that is there already. held is what ctx holds.
func (e *Engine) grant(ctx context.Context, held *holding, pl *plan, key string, several []string, l *Lease) (err error) {
	if e.overrides != nil {
		e.overrides.remind(e)
	}
	if len(several) > 0 {
		return e.grantAll(ctx, held, pl, several, l)
	}
	l.hold, err = e.takeHold(ctx, held, pl, key, e.patience(pl, 0))
	return err
}

// takeHold takes the lock of one key, for which it waits that long.
func (e *Engine) takeHold(ctx context.Context, held *holding, pl *plan, key string, patience time.Duration) (*hold, error) {
	if n := len(key) - len(e.prefix); n > MaxKeyLength {
		return nil, e.failure("acquire", pl.Name, ErrKey).because("the key has %d bytes; at most %d are possible", n, MaxKeyLength)
	}
	if outer := held.of(e, key); outer != nil {
		return e.nest(pl, outer)
	}
	start := time.Now()
	sctx, sp := pl.signals.Acquire(ctx)
	h, err := e.wait(sctx, pl, key, patience, start)
	if err != nil {
		pl.signals.Refused(sctx, sp, time.Since(start), outcome(err, signals.Acquired))
		return nil, err
	}
	pl.signals.Granted(sctx, sp, h.since.since(at(start)), h.token())
	h.span = pl.signals.Hold(ctx, sp)
	h.span.Token(h.token())
	return h, nil
}

// nest answers a context that holds the key already.
func (e *Engine) nest(pl *plan, outer *hold) (*hold, error) {
	if has := outer.mode(); has != Exclusive && has != pl.Mode {
		return nil, e.failure("acquire", pl.Name, ErrDeadlock).because("the call holds the key as %s and asks for it as %s: others may hold it too and do the same; release it first, or take it as %s from the start", has, pl.Mode, pl.Mode)
	}
	if !pl.Reentrant {
		return nil, e.failure("acquire", pl.Name, ErrDeadlock).because("waiting could not end; set Policy.Reentrant, or use core.Detach for work that outlives the call")
	}
	if !outer.use() {
		return nil, e.failure("acquire", pl.Name, ErrLost)
	}
	return outer, nil
}

func (e *Engine) shardOf(key string) *shard {
	return &e.shards[maphash.String(e.seed, key)%uint64(len(e.shards))]
}
