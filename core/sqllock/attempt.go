package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// runAttempt runs f on a goroutine of the session, and repeats it after transient errors,
// until it succeeds, ctx ends, stop is closed, or the server leaves a statement unanswered
// for the session's time-out. If err is not nil, unchanged reports whether the attempt has
// certainly changed nothing.
func runAttempt[T any](ctx context.Context, s *session, stop <-chan struct{}, f func(context.Context, *attempt) (T, error)) (out T, unchanged bool, err error) {
	return runTries(ctx, s, stop, new(kit.Tries), f)
}

// runTries is runAttempt, and notes the tries that it repeats.
func runTries[T any](
	ctx context.Context, s *session, stop <-chan struct{}, tries *kit.Tries, f func(context.Context, *attempt) (T, error),
) (out T, unchanged bool, err error) {
	type result struct {
		out T
		err error
	}
	if err := ctx.Err(); err != nil {
		return out, true, err
	}
	waited := s.db.Stats().WaitCount
	silence := func() error { return s.silence(waited) }
	inner, cancel := context.WithCancel(s.Ctx)
	limit := time.AfterFunc(s.timeout, cancel)
	a := &attempt{resetTimeout: func() { limit.Reset(s.timeout) }}
	finished := make(chan result, 1)
	if !s.Start(func() {
		defer cancel() // after the result was sent: before, it would look like a time-out
		defer limit.Stop()
		var r result
		r.err = retry(inner, s.timeout, silence, tries, func() (err error) {
			r.out, err = f(inner, a)
			return err
		})
		finished <- r
	}) {
		limit.Stop()
		cancel()
	}
	answered := func(r result) (T, bool, error) {
		if r.err == nil {
			return r.out, false, nil
		}
		return out, a.abandon(), r.err
	}
	select {
	case r := <-finished:
		return answered(r)
	case <-ctx.Done():
		unchanged = a.abandon()
		// Client libraries close the connection of a cancelled statement, and a new
		// connection costs as much as many statements. So the statement may finish.
		limit.Reset(min(statementGrace, s.timeout))
		return out, unchanged, tries.Ended(ctx.Err())
	case <-inner.Done():
		select {
		case r := <-finished: // f returned first, and cancelled inner
			return answered(r)
		default:
		}
		err = tries.Ended(silence())
		if s.Ctx.Err() != nil {
			err = driver.ErrClosed
		}
	case <-stop:
		cancel()
		err = driver.ErrClosed
	}
	return out, a.abandon(), err
}

// statementGrace is how long a statement may run on after its caller has left.
const statementGrace = 250 * time.Millisecond

// retry runs f until it succeeds, fails permanently, ctx ends, or limit has passed.
func retry(ctx context.Context, limit time.Duration, silence func() error, tries *kit.Tries, f func() error) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if err = classify(err); kit.Final(err) || errors.Is(err, errAbandoned) {
			return err
		}
		if ctx.Err() == nil { // otherwise the error is of the statement that was given up
			tries.Failed(err)
		}
		if time.Since(start) > limit || !kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(pause))) {
			return tries.Ended(silence())
		}
	}
}

const (
	firstPause = 5 * time.Millisecond // before the first retry
	maxPause   = 50 * time.Millisecond
)

// attempt is one request to the database, including its retries. The caller may abandon it
// at any time. After that nothing that commits is sent, whatever the client library does.
type attempt struct {
	mu         sync.Mutex
	abandoned  bool // by its caller
	commitSent bool // something that commits was sent; its outcome may be unknown

	resetTimeout func() // restarts the time-out for the next statement; nil if there is none
}

// progress restarts the time-out, because the server has answered a statement.
func (a *attempt) progress() {
	if a.resetTimeout != nil && !a.isAbandoned() {
		a.resetTimeout()
	}
}

// commit calls f, which sends a COMMIT or a statement that commits itself, unless the attempt was
// abandoned.
func (a *attempt) commit(f func() error) error {
	a.mu.Lock()
	if a.abandoned {
		a.mu.Unlock()
		return errAbandoned
	}
	a.commitSent = true
	a.mu.Unlock()
	return f()
}

// isAbandoned reports whether the caller has abandoned the attempt.
func (a *attempt) isAbandoned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.abandoned
}

// abandon prevents any later COMMIT. It reports whether the attempt has certainly changed
// nothing.
func (a *attempt) abandon() (unchanged bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoned = true
	return !a.commitSent
}

// errAbandoned ends an abandoned attempt. No caller sees it.
var errAbandoned = errors.New("the attempt was given up")
