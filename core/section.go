package core

import (
	"context"
	"errors"
	"time"
)

// Section is a call's time in the critical section: from [Guard.Enter], which took
// the lock, to Leave, which releases it.
type Section struct {
	lease Lease
	outer lasting // that it was entered with
	binding
}

// enter takes the lock of a key, or of several, for a call.
func (e *Engine) enter(ctx context.Context, pl *plan, key string, several []string) (*Section, error) {
	s, held := &Section{outer: lasting{ctx}}, holdingIn(ctx)
	if err := e.grant(ctx, held, pl, key, several, &s.lease); err != nil {
		return nil, err
	}
	s.bind(ctx, held, &s.lease)
	return s, nil
}

// Context returns the context for the guarded call: that of Enter with the lease in
// it, cancelled with the cause ErrLost, ErrMaxHold or ErrClosed if the lease ends
// before the call does.
func (s *Section) Context() context.Context { return s.ctx }

// Lease returns the lease, which may have ended meanwhile: [LeaseFrom] finds it in Context
// only as long as it has not. It is released by Leave.
func (s *Section) Lease() *Lease { return &s.lease }

// Leave releases the lock. It is deferred, so that a panic releases it too:
//
//	defer section.Leave(&err)
//
// err is the call's error. If that is nil and the lease had ended before, Leave sets
// it to ErrLost, ErrMaxHold or ErrClosed: the call cannot know that it was alone to
// the end. If the store could not be told of the release, which goes on in the
// background then, err stays as it is. Leave is called once.
func (s *Section) Leave(err *error) {
	ended := s.lease.end(&s.outer)
	s.unbind()
	if *err == nil && ended != nil && !errors.Is(ended, ErrUnavailable) {
		*err = ended
	}
}

// lasting is a context that does not end with the one that it has its values from: a
// call that was cancelled has a lock to release like any other.
type lasting struct{ context.Context }

func (*lasting) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*lasting) Done() <-chan struct{}       { return nil }
func (*lasting) Err() error                  { return nil }

// do runs fn in the critical section of a key, or of several.
func (e *Engine) do(ctx context.Context, pl *plan, key string, several []string, fn func(context.Context) error) (err error) {
	if fn == nil {
		return e.failure("do", pl.Name, ErrPolicy).because("the function is nil")
	}
	s, err := e.enter(ctx, pl, key, several)
	if err != nil {
		return err
	}
	defer s.Leave(&err)
	return fn(s.ctx)
}
