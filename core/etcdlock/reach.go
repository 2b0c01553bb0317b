package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

const (
	firstPause = 10 * time.Millisecond // before a request is repeated
	maxPause   = 250 * time.Millisecond
)

// reach makes a request, and makes it again after errors that may pass, until the
// store's time is up or ctx ends. So call must bear being made twice, and late. It
// returns when ctx ends, whatever the client library does: then call is left behind,
// with a context that has ended. doubt says that some attempt before the last got no
// answer and may have been executed.
func reach[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (v T, doubt bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silence(s.timeout))
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		v, err = once(ctx, s, call)
		if !passing(err) {
			return v, doubt, err
		}
		doubt = true
		if s.d.client.Ctx().Err() != nil {
			return v, doubt, &driver.PermanentError{Err: errors.New("etcd: the client is closed")}
		}
		if !kit.Sleep(ctx, pause) {
			return v, doubt, ended(ctx)
		}
	}
}

// once makes one attempt.
func once[T any](ctx context.Context, s *session, call func(context.Context) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if ctx.Err() != nil {
		return none, ended(ctx)
	}
	answers := make(chan answer, 1)
	s.Start(func() {
		v, err := call(ctx)
		answers <- answer{v, err}
	})
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil {
			return none, ended(ctx)
		}
		return a.v, classify(a.err)
	case <-ctx.Done():
	}
	select {
	case a := <-answers: // both were ready
		if a.err == nil {
			return a.v, nil
		}
	default:
	}
	return none, ended(ctx)
}
