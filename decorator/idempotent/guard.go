package idempotent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/internal/room"
)

// Guard is a policy whose calls run once for each key. It is what surfaces are made of. It is safe for
// concurrent use.
type Guard[T any] struct {
	engine *core.Engine
	lock   *core.Guard[T]
	key    func(T) (string, error)
	store  Store
	tx     TxStore // the store, if a run has a transaction; else nil
	policy Policy
	outage room.Outage
	signs  *signals
}

// NewGuard compiles the policy of a lock, whose one Key is that of the record, too. The error is a
// [core.ErrPolicy].
func NewGuard[T any](e *core.Engine, lock core.Policy, store Store, p Policy, r core.Resolver[T]) (*Guard[T], error) {
	lock.Tokens = max(lock.Tokens, core.ClockTokens)
	guard, err := core.NewGuard(e, lock, r)
	if err != nil {
		return nil, err
	}
	switch l := guard.Policy(); {
	case len(l.Keys) > 0:
		err = errors.New("the policy has several Keys; the one Key of its lock is that of the record")
	case l.Mode != core.Exclusive:
		err = fmt.Errorf("the policy's Mode is %s; one run at a time needs exclusive", l.Mode)
	case l.Reentrant:
		err = errors.New("the policy is Reentrant; each run has a fencing token of its own, so it needs a lock of its own")
	case l.MinHold != 0:
		err = errors.New("the policy has a MinHold; whoever waits for an answer would wait for the end of that")
	case store == nil:
		err = errors.New("the store is nil; use idempotent.NewMemory, redisrecords.New or one of your own")
	default:
		err = p.fill()
	}
	g := &Guard[T]{engine: e, lock: guard, store: store, policy: p}
	if err == nil && p.Died == Tx {
		g.tx, err = transactional(e, store)
	}
	if err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	if g.key, err = core.NewKey(guard.Policy().Key, r); err != nil {
		return nil, err
	}
	if g.signs, err = newSignals(e, guard.Name()); err != nil {
		return nil, room.Refuse(guard.Name(), err)
	}
	return g, nil
}

// Name returns what the policy is called in errors and telemetry.
func (g *Guard[T]) Name() string { return g.lock.Name() }

// Policy returns the policy with the defaults of zero values.
func (g *Guard[T]) Policy() Policy { return g.policy }

// Ending is how a run has ended.
type Ending struct {
	// Answer is what repeated calls get, if Keep is set. One longer than [Policy.MaxBytes] is not stored.
	Answer []byte

	// Keep says that the call is done, and is not to run again. False gives the record up: the
	// next call runs. If the lease has ended by then, it is Unknown.
	Keep bool

	// Unknown says, without Keep, that the run does not know what it came to: [Policy.Died] decides, as if it
	// had died.
	Unknown bool

	// Failed says that the call is done without an effect. Under [Tx] its transaction is rolled back, and
	// the answer is stored alone. Elsewhere it has no meaning.
	Failed bool
}

// Do runs the call of the key that src renders to, under its lock, unless it is done: then it
// returns the answer of that run as replay, which is not nil, and does not call run. fingerprint is a
// SHA-256 of all that the call acts on.
//
// run gets the values of ctx, and the lease; it does not end with ctx, which bounds the waiting
// alone. It ends with the lease. If the error is not nil and run was called, the lock or the record was
// lost while it ran, its answer is not stored, and another run may have begun. If only the store did not
// answer when the answer was to be stored, the error is nil and the log says so: what a repeated call gets then,
// [Policy.Died] says. If run panics under [Refuse] the record stays begun; otherwise it is given up. Under [Tx]
// run's context has the transaction, and an error after run was called says that it was rolled
// back, or may have been: what run has answered must not be told.
//
// The errors are a [*Error] and those of [core.Engine.Acquire]: a [core.ErrBusy] or a [core.ErrTimeout] if the
// first call is still under way. A call waits for up to 2 s longer than the lock's Wait, if
// others begin and do not come to an answer. The values of the key are asked for twice in a call that runs, and have
// to be the same.
func (g *Guard[T]) Do(ctx context.Context, src T, fingerprint [32]byte, run func(context.Context) Ending) (replay []byte, err error) {
	ended := panicked
	defer func() { g.signs.ended(ctx, ended) }()
	key, err := g.render(src)
	if err != nil {
		ended = refused
		return nil, err
	}
	c := &call[T]{ended: &ended, guard: g, key: key, claim: Claim{Run: newRun(), Fingerprint: fingerprint, Alone: alone, Keep: max(g.policy.Keep, defaultKeep)}}
	waiting := ctx
	if wait := g.lock.Policy().Wait; wait > 0 && wait != core.Forever {
		bounded, cancel := context.WithTimeoutCause(ctx, wait+alone, errWaited)
		defer cancel()
		waiting = bounded
	}
	for pause := shortestPause; ; pause = min(2*pause, alone/4) {
		replay, again, err := c.attempt(waiting, src, run)
		if !again && (err != nil || replay != nil) {
			ended = outcomeOf(replay, err)
		}
		if !again {
			return replay, err
		}
		if room.Pause(waiting, pause) != nil {
			err = g.cancelled(waiting)
			ended = outcomeOf(nil, err)
			return nil, err
		}
	}
}

// Forget removes the record of a call, so that the next one runs: for somebody who has found out
// what a run came to that had died, see [Refuse]. If a run is under way its answer is stored when it ends, unless
// another call has begun by then, which runs after it: call Forget only if none is.
func (g *Guard[T]) Forget(ctx context.Context, src T) error {
	key, err := g.render(src)
	if err != nil {
		return err
	}
	if err := g.store.Forget(ctx, key); err != nil {
		return g.unanswered(ctx, err)
	}
	return nil
}

func (g *Guard[T]) render(src T) (string, error) {
	key, err := g.key(src)
	var fault *core.Error
	if errors.As(err, &fault) {
		fault.Op, fault.Policy = "do", g.Name()
	}
	return key, err
}

const (
	// alone is for how long a run that has no lock yet has its key for itself. It is much more than
	// a lock takes that nobody holds.
	alone = 2 * time.Second

	shortestPause = 10 * time.Millisecond

	// storesWithin is how long a run that has ended tries to store its answer, holding its lock.
	storesWithin = 5 * time.Second
)

// call is one call of Do.
type call[T any] struct {
	guard *Guard[T]
	key   string
	claim Claim
	mine  bool      // the record is begun by claim.Run, as far as is known
	until time.Time // until when nobody else can have taken it over
	ended *outcome  // of a run
}

// attempt looks, takes the lock and runs. again says that it is worth another one: whoever has begun the record is about to
// take the lock.
func (c *call[T]) attempt(ctx context.Context, src T, run func(context.Context) Ending) (replay []byte, again bool, err error) {
	g := c.guard
	replay, again, err = c.begin(ctx)
	if replay != nil || again || err != nil {
		return replay, false, c.busy(again, err)
	}
	defer c.leave(ctx)

	// The lock is waited for as long as ctx lives, and the run outlives it.
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stay := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	section, err := g.lock.Enter(detached, src)
	if !stay() && err == nil {
		section.Leave(new(error))
		return nil, false, g.cancelled(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = g.cancelled(ctx)
		}
		return nil, false, err
	}
	var ended error
	defer section.Leave(&ended)
	defer c.leave(ctx) // while the lock is held: whoever has it next finds no record that seems to have died

	if section.Lease().Key() != c.key {
		return nil, false, &core.Error{Op: "do", Policy: g.Name(), Kind: core.ErrKey, Detail: "the values of the key were others when its lock was taken than before; what finds them must find the same within a call"}
	}
	c.claim.Token = section.Lease().Token()
	replay, again, err = c.confirm(detached)
	if replay != nil || again || err != nil {
		return replay, again && g.lock.Policy().Wait > 0, c.busy(again, err)
	}
	if *c.ended, err = c.run(section.Context(), run); *c.ended == lost || *c.ended != ran && err == nil {
		err = cmp.Or(section.Lease().Err(), err) // the lease knows better why
	}
	return nil, false, err // nil if it is stored although the lock was lost: nobody else has begun
}

// begin looks before the lock is taken, and begins the record if there is none. again says that somebody else has
// begun it and is about to take the lock, which this call must not take from him: it would not wait.
func (c *call[T]) begin(ctx context.Context) (replay []byte, again bool, err error) {
	claim := c.claim
	claim.Token = 0
	sent := time.Now()
	within, cancel := context.WithTimeout(ctx, storesWithin)
	defer cancel()
	r, err := c.guard.store.Begin(within, c.key, claim)
	if err != nil {
		go c.giveUp(context.WithoutCancel(ctx)) // it may be begun all the same
		return nil, false, c.guard.unanswered(ctx, err)
	}
	c.guard.answered()
	if c.mine = r.State == None || r.State == Begun && r.Run == c.claim.Run; c.mine {
		c.until = sent.Add(alone - alone/100 - 2*time.Millisecond)
	}
	replay, err = c.found(r)
	return replay, !c.mine && r.Alone > 0 && c.guard.lock.Policy().Wait <= 0, err
}

// found returns the answer that a record has for this call, or why it cannot have one.
func (c *call[T]) found(r Record) (replay []byte, err error) {
	g := c.guard
	switch {
	case r.State == None:
		return nil, nil
	case r.Fingerprint != c.claim.Fingerprint:
		return nil, g.failure(ErrMismatch, "use a new one for each request", nil)
	case r.State == Begun:
		return nil, nil
	}
	return g.open(c.key, r.Answer)
}

// confirm makes sure, under the lock, that the record is this run's. Usually it is known to be: nobody can
// have taken it over since begin.
func (c *call[T]) confirm(ctx context.Context) (replay []byte, again bool, err error) {
	g := c.guard
	if c.mine && time.Now().Before(c.until) {
		return nil, false, nil
	}
	claim := c.claim
	if g.policy.Died == Refuse {
		claim.Token = 0 // nothing is taken over
	}
	within, cancel := context.WithTimeout(ctx, storesWithin)
	defer cancel()
	r, err := g.store.Begin(within, c.key, claim)
	switch {
	case errors.Is(err, ErrSuperseded):
		return nil, false, c.overtaken(err)
	case err != nil:
		return nil, false, g.unanswered(ctx, err)
	}
	replay, err = c.found(r)
	c.mine = r.State == None || r.State == Begun && r.Run == c.claim.Run
	switch {
	case replay != nil || err != nil || c.mine:
	case r.Alone > 0:
		return nil, true, nil
	case g.policy.Died == Refuse:
		err = g.failure(ErrUnknown, "find out what it came to, and call Forget if it is to run again", nil)
	default:
		c.mine = true // taken over
	}
	return replay, false, err
}

// busy is the error of a call whose key somebody else has begun and not locked yet.
func (c *call[T]) busy(again bool, err error) error {
	if again && err == nil && c.guard.lock.Policy().Wait <= 0 {
		return &core.Error{Op: "acquire", Policy: c.guard.Name(), Kind: core.ErrBusy, RetryAfter: shortestPause}
	}
	return err
}

// overtaken is the error of a call that a later holder of the lock has taken its record from.
func (c *call[T]) overtaken(cause error) error {
	return &core.Error{Op: "do", Policy: c.guard.Name(), Kind: core.ErrLost, Detail: "a later holder of the lock has begun to run", Cause: cause}
}

// run calls the function, and stores what it came to.
func (c *call[T]) run(ctx context.Context, run func(context.Context) Ending) (outcome, error) {
	if c.guard.tx != nil {
		return c.runInTx(ctx, run)
	}
	c.mine = c.guard.policy.Died == Rerun // if it panics
	end := run(ctx)
	if !end.Keep {
		// A run that fails because its lease has ended does not know what it came to.
		c.mine = c.guard.policy.Died == Rerun || !end.Unknown && ctx.Err() == nil
		return unkept, nil
	}
	c.mine = false
	return c.finished(ctx, c.sealed(end))
}

// done is the claim of a run that has ended.
func (c *call[T]) done() Claim {
	claim := c.claim
	claim.Keep = c.guard.policy.Keep
	return claim
}

// sealed is the answer as it is stored.
func (c *call[T]) sealed(end Ending) []byte {
	answer, err := c.guard.seal(c.key, end.Answer)
	if err != nil {
		c.guard.engine.Logger().Error("an answer cannot be sealed, so that it is not replayed", "lock.name", c.guard.Name(), "error", err)
	}
	return answer
}

// finished stores the answer, and tries to for some seconds. The error is that of a run which has lost its record.
func (c *call[T]) finished(ctx context.Context, answer []byte) (outcome, error) {
	g := c.guard
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storesWithin)
	defer cancel()
	for pause := shortestPause; ; pause *= 2 {
		stored, err := g.store.Finish(ctx, c.key, c.done(), answer)
		if err == nil {
			g.answered()
			if !stored {
				return lost, c.overtaken(nil)
			}
			return ran, nil
		}
		if room.Pause(ctx, pause) != nil {
			g.engine.Logger().Error("the answer of a call that has run cannot be stored, so that a repeated one is not replayed", "lock.name", g.Name(), "error", err)
			return unstored, nil
		}
	}
}

// leave gives the record up if it is this run's and did not come to an answer.
func (c *call[T]) leave(ctx context.Context) {
	if !c.mine {
		return
	}
	c.mine = false
	ctx = context.WithoutCancel(ctx)
	if c.tryGiveUp(ctx) != nil {
		go c.giveUp(ctx)
	}
}

func (c *call[T]) tryGiveUp(ctx context.Context) (err error) {
	defer room.Rescue(&err)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return c.guard.store.GiveUp(ctx, c.key, c.claim)
}

// giveUp tries to in the background, for some seconds, and once more when the engine closes.
func (c *call[T]) giveUp(ctx context.Context) {
	for pause := 100 * time.Millisecond; pause < storesWithin; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-c.guard.engine.Closing():
			pause = storesWithin
		}
		if c.tryGiveUp(ctx) == nil {
			return
		}
	}
}

// errWaited is the cause of a context that ends when a call has waited for as long as it may.
var errWaited = errors.New("the call has waited for as long as its policy says")

// cancelled is the error of a call whose ctx has ended before it ran.
func (g *Guard[T]) cancelled(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != errWaited {
		return &core.Error{Op: "do", Policy: g.Name(), Kind: ctx.Err(), Cause: cause}
	}
	return &core.Error{Op: "do", Policy: g.Name(), Kind: core.ErrTimeout, RetryAfter: shortestPause, Detail: "other calls of the key began, and did not come to an answer"}
}

func (g *Guard[T]) failure(kind error, detail string, cause error) error {
	return &Error{Policy: g.Name(), Kind: kind, Detail: detail, Cause: cause}
}

// unanswered is the failure that a store's error is, if it is not the context's. The log says it once.
func (g *Guard[T]) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return g.cancelled(ctx)
	}
	if g.outage.Failed() {
		g.engine.Logger().Error("the store of idempotency records fails, so that calls are refused", "lock.name", g.Name(), "error", err)
	}
	return g.failure(ErrUnavailable, "", err)
}

func (g *Guard[T]) answered() {
	if g.outage.Answered() {
		g.engine.Logger().Info("the store of idempotency records answers again", "lock.name", g.Name())
	}
}

// What the first byte of a stored answer says of the rest.
const (
	markNoReplay = '0' // there is none
	markPlain    = '1'
	markSealed   = '2'
)

// seal returns an answer as it is stored. If there is an error it is one without a replay.
func (g *Guard[T]) seal(key string, answer []byte) (stored []byte, err error) {
	switch {
	case len(answer) > g.policy.MaxBytes:
		return []byte{markNoReplay}, nil
	case g.policy.Seal == nil:
		return append([]byte{markPlain}, answer...), nil
	}
	defer func() {
		if err != nil {
			stored = []byte{markNoReplay}
		}
	}()
	defer room.Rescue(&err)
	sealed, err := g.policy.Seal(key, answer)
	return append([]byte{markSealed}, sealed...), err
}

// open returns an answer from what is stored, never nil without an error.
func (g *Guard[T]) open(key string, stored []byte) (answer []byte, err error) {
	switch {
	case len(stored) > 0 && stored[0] == markPlain && g.policy.Open == nil:
		return stored[1:], nil
	case len(stored) > 0 && stored[0] == markSealed && g.policy.Open != nil:
		answer, err := g.unseal(key, stored[1:])
		if err != nil {
			return nil, g.failure(ErrNoReplay, "it cannot be opened", err)
		}
		return append([]byte{}, answer...), nil
	case len(stored) > 0 && stored[0] == markNoReplay:
		return nil, g.failure(ErrNoReplay, "it was too large, or could not be sealed", nil)
	}
	return nil, g.failure(ErrNoReplay, "it was stored by another policy", nil)
}

func (g *Guard[T]) unseal(key string, sealed []byte) (answer []byte, err error) {
	defer room.Rescue(&err)
	return g.policy.Open(key, sealed)
}
