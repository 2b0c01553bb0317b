package core

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/carried"
	"github.com/lockaround/lockaround/core/internal/manager"
	"github.com/lockaround/lockaround/core/internal/observe"
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
	caps     driver.Capabilities
	manager  *manager.Manager
	pooled   driver.Pooled // the driver, if it is one; otherwise nil
	prefix   string        // of every key in the store
	identity string        // of the process
	signals  *signals.Signals
	hub      *observe.Hub         // for those who watch
	dropped  func(*manager.Terms) // warns of a lease that became unreachable; made once, since each lease refers to it

	overrides atomic.Pointer[overrides] // nil if there are none
	guards    guards
	names     names
	plans     plans
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
	e := &Engine{settings: s, caps: d.Capabilities(), plans: plans{seed: maphash.MakeSeed()}}
	if s.tokensAfter > 0 && e.caps.Tokens != DurableTokens {
		return nil, fmt.Errorf("%w: WithTokensAfter: the tokens of driver %s are %s ones, and it is for durable ones; leave it out", ErrPolicy, e.caps.Name, e.caps.Tokens)
	}
	if err := e.name(); err != nil {
		return nil, err
	}
	e.prefix = s.namespace + "/"
	e.dropped = func(t *manager.Terms) {
		e.log().Warn("lockaround: a lease was dropped without Release, and its key stays locked", "lock.name", t.Name, "lock.driver", e.caps.Name)
	}
	if e.signals, err = signals.New(s.tracers, s.meterProvider(), e.caps.Name); err != nil {
		return nil, err
	}
	if fault := e.defaults.fault(e); fault != nil {
		return nil, fault
	}
	if s.configured != nil {
		all, err := e.newOverrides(s.configured, new(seen))
		if err != nil {
			return nil, err
		}
		e.overrides.Store(all)
	}
	e.pooled, _ = d.(driver.Pooled)
	var logKey func(string) string
	if s.loggedKeys {
		logKey = func(key string) string { return key[len(e.prefix):] }
	}
	e.manager, err = manager.Open(manager.Config{
		Driver: d, Capabilities: e.caps, StoreTimeout: s.timeout, MaxWaiters: s.maxWaiters, MaxHeld: s.maxHeld,
		TokensAfter: s.tokensAfter, Identity: e.identity, Logger: e.log, LogKey: logKey, Carried: e.carried,
	})
	if err != nil {
		// It did no I/O: the error is about how the driver was made.
		refusal := e.failure("open", "", ErrPolicy).because("%v", err)
		refusal.Cause = err
		return nil, refusal
	}
	e.hub = observe.New(observe.Config{Manager: e.manager, Prefix: e.prefix, Identity: e.identity, Overridden: e.overridden})
	if s.namespace == "" {
		s.log().Warn("lockaround: no namespace; applications that share this store share its locks", "lock.driver", e.caps.Name)
	}
	return e, nil
}

func init() {
	observe.Of = func(ctx context.Context, engine any) (*observe.Hub, error) {
		const op = "watch"
		e := engine.(*Engine)
		switch err := e.misused(ctx, op, ""); {
		case err != nil:
			return nil, err
		case e.hub == nil:
			return nil, e.failure(op, "", ErrPolicy).because("the engine was not made by core.New")
		case ctx.Err() != nil:
			return nil, e.failure(op, "", ctx.Err())
		}
		return e.hub, nil
	}
}

// Acquire takes the lock of a literal key and returns its lease, which the
// caller must release. ctx bounds the acquisition only: when it ends later, the
// lease stays. It carries the leases that the caller holds already, see
// [LeaseFrom].
//
// The error is an [*Error] around ErrBusy, ErrFull, ErrTimeout, ErrUnavailable,
// ErrDeadlock, ErrClosed, ErrPolicy, ErrKey, or ctx's error.
func (e *Engine) Acquire(ctx context.Context, p Policy) (*Lease, error) {
	if err := e.misused(ctx, "acquire", p.Name); err != nil {
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
	if err := e.misused(ctx, "do", p.Name); err != nil {
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
// ErrClosed or ctx's error. Its text says what the store came to, without credentials: it is for the
// log or an operator, and not for clients.
func (e *Engine) Ping(ctx context.Context) error {
	if err := e.misused(ctx, "ping", ""); err != nil {
		return err
	}
	err := e.refused("ping", "", e.manager.Ask(ctx, func(ctx context.Context, s driver.Session) error { return s.Ping(ctx) }))
	if fault, ok := err.(*Error); ok && fault.Cause != nil { //nolint:errorlint // as refused has made it
		said := strings.Join(strings.Fields(manager.Redact(fault.Cause.Error())), " ")
		fault.Detail = strings.ToValidUTF8(said[:min(len(said), maxSaid)], "")
	}
	return err
}

// maxSaid is how many bytes of what a store said are in a text.
const maxSaid = 500

// Logger returns where the engine's log goes, for a surface that has something of its own to
// say: what [WithLogger] set, or slog.Default at the time of the call, also for a nil
// engine. It is never nil. But for a nil engine its handler is guarded as [WithLogger] says, so
// that it can be used on any goroutine.
func (e *Engine) Logger() *slog.Logger {
	if e == nil {
		return slog.Default()
	}
	return e.log()
}

// MeterProvider returns where the engine's metrics go, for a surface that has metrics of
// its own: what [WithMeterProvider] set, or OpenTelemetry's global provider. It is never
// nil.
func (e *Engine) MeterProvider() metric.MeterProvider { return e.meterProvider() }

// TracerProvider returns where the engine's spans go, for a surface that has spans of its
// own: what [WithTracerProvider] set, or OpenTelemetry's global provider. It is never nil.
func (e *Engine) TracerProvider() trace.TracerProvider {
	if e.tracers != nil {
		return e.tracers
	}
	return otel.GetTracerProvider()
}

// Shutdown refuses new acquisitions with ErrClosed, lets the callers that wait
// or hold finish, and returns when none is left or ctx ends, then with ctx's
// error. It does not close the engine: call Close after it.
func (e *Engine) Shutdown(ctx context.Context) error {
	if err := e.misused(ctx, "shutdown", ""); err != nil {
		return err
	}
	return e.refused("shutdown", "", e.manager.Shutdown(ctx))
}

// Close refuses new acquisitions, fails the waiting ones with ErrClosed, cancels
// every hold with ErrClosed and releases it at the store, and stops every
// goroutine of the engine. It returns within about two store timeouts, whatever
// the store does; leases that could not be released in that time end with their
// TTL. A second Close waits for the first. Lines of the log that are late are waited for up to
// 3 s more.
//
// Calls that are still running lose their lock here: use Shutdown first to let
// them finish.
func (e *Engine) Close() error {
	if err := e.misused(context.Background(), "close", ""); err != nil {
		return err
	}
	e.hub.Close()
	defer e.logs.settle(logSettles)
	return e.refused("close", "", e.manager.Close())
}

// Closing returns a channel that is closed once Shutdown or Close has been called: new
// acquisitions get ErrClosed from then on. It is for what waits for something else meanwhile, and
// is to end as well. A nil engine has a nil channel.
func (e *Engine) Closing() <-chan struct{} {
	if e == nil || e.manager == nil {
		return nil
	}
	return e.manager.Closing()
}

// Uses reports whether the engine's driver reaches its store by way of pool, such as a
// *sql.DB. Calls that hold connections of a bounded pool while they use locks by way of the
// same one may wait for each other for ever.
func (e *Engine) Uses(pool any) bool { return e != nil && e.pooled != nil && e.pooled.Uses(pool) }

// name sets what the engine is called, or says why it cannot be.
func (e *Engine) name() error {
	stores := func(c driver.Capabilities) bool { return c.Identity }
	switch id := e.settings.identity; {
	case id == nil:
		e.identity = defaultIdentity()
	case *id == "":
		return fmt.Errorf("%w: WithIdentity: the identity is empty; leave the option out for the host's name and the process's ID", ErrPolicy)
	case len(*id) > driver.MaxIdentity:
		return fmt.Errorf("%w: WithIdentity: the identity has %d bytes; use at most %d", ErrPolicy, len(*id), driver.MaxIdentity)
	case !driver.ValidIdentity(*id):
		return fmt.Errorf("%w: WithIdentity(%q): use ASCII letters, digits and . _ - : / @ + = , # ~ and %% only", ErrPolicy, *id)
	case !stores(e.caps):
		return fmt.Errorf("%w: WithIdentity: %s; leave the option out", ErrPolicy, e.lacks(stores))
	default:
		e.identity = *id
	}
	return nil
}

// misused returns the error of an operation without an engine or a context, or nil. policy is a
// policy's name, if the operation is of one.
func (e *Engine) misused(ctx context.Context, op, policy string) error {
	switch {
	case e == nil:
		return &Error{Op: op, Policy: policy, Kind: ErrPolicy, Detail: nilEngine}
	case ctx == nil:
		return e.failure(op, policy, ErrPolicy).because("the context is nil; use context.Background() where there is none")
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
	if all := e.overrides.Load(); all != nil {
		all.remind(e)
	}
	l.engine = e
	if len(several) > 0 {
		return e.grantAll(ctx, held, pl, several, l)
	}
	l.hold, err = e.takeHold(ctx, held, pl, key)
	return err
}

// takeHold takes the lock of one key.
func (e *Engine) takeHold(ctx context.Context, held *holding, pl *plan, key string) (*manager.Hold, error) {
	if err := e.tooLong(pl, key); err != nil {
		return nil, err
	}
	if outer := held.of(e, key); outer != nil {
		return e.nest(pl, outer)
	}
	h, r := e.manager.Acquire(ctx, &pl.terms, key, e.patience(pl, 0), held)
	if r != nil {
		e.noteTaken(ctx, pl.Name, r)
		return nil, e.refused("acquire", pl.Name, r)
	}
	return h, nil
}

// tooLong returns the error of a key that is too long, or nil.
func (e *Engine) tooLong(pl *plan, key string) error {
	if n := len(key) - len(e.prefix); n > MaxKeyLength {
		return e.failure("acquire", pl.Name, ErrKey).because("the key has %d bytes; at most %d are possible", n, MaxKeyLength)
	}
	return nil
}

// nest answers a context that holds the key already.
func (e *Engine) nest(pl *plan, outer *manager.Hold) (*manager.Hold, error) {
	if has := outer.Mode(); has != Exclusive && has != pl.Mode {
		return nil, e.failure("acquire", pl.Name, ErrDeadlock).because("the call holds the key as %s and asks for it as %s: others may hold it too and do the same; release it first, or take it as %s from the start", has, pl.Mode, pl.Mode)
	}
	if !pl.Reentrant {
		return nil, e.failure("acquire", pl.Name, ErrDeadlock).because("waiting could not end; set Policy.Reentrant, or use core.Detach for work that outlives the call")
	}
	if !outer.Use() {
		return nil, e.failure("acquire", pl.Name, ErrLost)
	}
	return outer, nil
}

// noteTaken says at the level of debugging that a call found its key taken, and by whom. It
// has the context of the call, for a handler that adds the trace.
func (e *Engine) noteTaken(ctx context.Context, policy string, r *manager.Refusal) {
	if r.Why != manager.Busy && r.Why != manager.Full && r.Why != manager.Timeout {
		return
	}
	log := e.log()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	about := []slog.Attr{
		slog.String("lock.name", policy), slog.String("lock.driver", e.caps.Name),
		slog.String("lock.outcome", r.Outcome(signals.Failed).String()),
	}
	if holder := shown(r.Holder.Identity); holder != "" {
		about = append(about, slog.String("lock.holder", holder))
	}
	if traceID, spanID := spanOf(r.Holder); traceID.IsValid() {
		about = append(about, slog.String("lock.holder.trace_id", traceID.String()), slog.String("lock.holder.span_id", spanID.String()))
	}
	log.LogAttrs(ctx, slog.LevelDebug, "lockaround: a call did not get its lock", about...)
}

// carried returns the fencing token of a key that came with ctx's request, and 0 if none did.
func (e *Engine) carried(ctx context.Context, key string) int64 {
	return carried.NumberOf(ctx, key[len(e.prefix):])
}

// failure is the error of an operation at the engine's store.
func (e *Engine) failure(op, policy string, kind error) *Error {
	return &Error{Op: op, Policy: policy, Driver: e.caps.Name, Kind: kind}
}

// refused is the error that a refusal of the manager is; nil if there is none.
func (e *Engine) refused(op, policy string, r *manager.Refusal) error {
	if r == nil {
		return nil
	}
	err := e.failure(op, policy, kinds[r.Why])
	err.Detail, err.RetryAfter, err.Cause = r.Detail, r.RetryAfter, r.Cause
	switch {
	case r.Detail != "":
	case r.Why == manager.Unavailable:
		err.Detail = describe(r.Cause)
	case r.Why == manager.Released:
		err.Detail = releasedBefore
	case r.Why == manager.Closed && op == "acquire":
		err.Detail = "Shutdown or Close was called before; let callers end first"
	case r.Why == manager.Closed && op == "release":
		err.Detail = "Close was called while the lock was held; call Shutdown before it"
	}
	return err
}
