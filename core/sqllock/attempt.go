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

const (
	firstPause = 5 * time.Millisecond // before a try is repeated
	maxPause   = 50 * time.Millisecond
)

// attempt is one request to the database, of one try or several, which its caller may
// give up at any time: whatever a client library does, nothing is committed after that.
type attempt struct {
	mu   sync.Mutex
	gone bool // the caller has given up
	sent bool // a COMMIT was on its way, whatever has become of it

	answered func() // gives the next statement an attempt's time; nil if there is no limit
}

// progress notes that the server has answered a statement.
func (a *attempt) progress() {
	if a.answered != nil && !a.isGone() {
		a.answered()
	}
}

// errGone is what an attempt that was given up ends with. Nobody sees it.
var errGone = errors.New("the attempt was given up")

// commit commits unless the caller has given up.
func (a *attempt) commit(tx interface{ Commit() error }) error {
	a.mu.Lock()
	if a.gone {
		a.mu.Unlock()
		return errGone
	}
	a.sent = true
	a.mu.Unlock()
	return tx.Commit()
}

// isGone reports whether the caller has given up.
func (a *attempt) isGone() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// giveUp ends the attempt, and reports whether it has certainly changed nothing.
func (a *attempt) giveUp() (clean bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = true
	return !a.sent
}

// ask runs f on a goroutine of the session, and again after what may pass, until it
// succeeds, ctx ends, the server has been silent for an attempt's time, or stop is closed.
// clean says of an error that the request has certainly changed nothing.
func ask[T any](ctx context.Context, s *session, stop <-chan struct{}, f func(context.Context, *attempt) (T, error)) (out T, clean bool, err error) {
	type result struct {
		out T
		err error
	}
	if err := ctx.Err(); err != nil {
		return out, true, err
	}
	inner, cancel := context.WithCancel(s.Ctx)
	limit := time.AfterFunc(s.timeout, cancel)
	a := &attempt{answered: func() { limit.Reset(s.timeout) }}
	done := make(chan result, 1)
	if !s.Start(func() {
		defer cancel() // not before the answer is there, which would be silence then
		defer limit.Stop()
		var r result
		r.err = repeat(inner, s.timeout, func() (err error) {
			r.out, err = f(inner, a)
			return err
		})
		done <- r
	}) {
		limit.Stop()
		cancel()
	}
	answered := func(r result) (T, bool, error) {
		if r.err == nil {
			return r.out, false, nil
		}
		return out, a.giveUp(), r.err
	}
	select {
	case r := <-done:
		return answered(r)
	case <-ctx.Done():
		clean = a.giveUp()
		// A driver breaks the connection of a statement that is cancelled, and a new one
		// costs many statements: so this one may end by itself.
		limit.Reset(min(afterwards, s.timeout))
		return out, clean, ctx.Err()
	case <-inner.Done():
		select {
		case r := <-done: // and then it was cancelled
			return answered(r)
		default:
		}
		err = &kit.SilenceError{Store: "sql", After: s.timeout}
		if s.Ctx.Err() != nil {
			err = driver.ErrClosed
		}
	case <-stop:
		cancel()
		err = driver.ErrClosed
	}
	return out, a.giveUp(), err
}

// afterwards is how long a statement goes on whose caller has given up.
const afterwards = 250 * time.Millisecond

// repeat runs f until it succeeds, fails for good, ctx ends, or has failed for so long.
func repeat(ctx context.Context, limit time.Duration, f func() error) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if err = classify(err); kit.Final(err) || errors.Is(err, errGone) {
			return err
		}
		if time.Since(start) > limit || !kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(pause))) {
			return &kit.SilenceError{Store: "sql", After: limit, Last: err}
		}
	}
}
