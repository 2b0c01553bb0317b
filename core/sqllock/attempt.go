package sqllock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
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
	if a.answered != nil {
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
	inner, cancel := context.WithCancel(s.ctx)
	defer cancel() // not before the answer is taken, which would be silence then
	limit := time.AfterFunc(s.timeout, cancel)
	a := &attempt{answered: func() { limit.Reset(s.timeout) }}
	done := make(chan result, 1)
	s.start(func() {
		defer limit.Stop()
		var r result
		r.err = repeat(inner, s.timeout, func() (err error) {
			r.out, err = f(inner, a)
			return err
		})
		done <- r
	})
	select {
	case r := <-done:
		if r.err == nil {
			return r.out, false, nil
		}
		err = r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-inner.Done():
		err = &silence{s.timeout, nil}
		if s.ctx.Err() != nil {
			err = driver.ErrClosed
		}
	case <-stop:
		err = driver.ErrClosed
	}
	return out, a.giveUp(), err
}

// repeat runs f until it succeeds, fails for good, ctx ends, or has failed for so long.
func repeat(ctx context.Context, limit time.Duration, f func() error) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		var refused *driver.PermanentError
		switch err = classify(err); {
		case err == nil, errors.As(err, &refused), errors.Is(err, errGone):
			return err
		case ctx.Err() != nil, time.Since(start) > limit:
			return &silence{limit, err}
		}
		again := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(pause)))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return &silence{limit, err}
		}
	}
}
