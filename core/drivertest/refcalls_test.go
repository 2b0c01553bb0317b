package drivertest_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

func (s *session) Ping(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.d.fault == pingWantsAnAnswerAtOnce {
		return context.DeadlineExceeded
	}
	ctx, stop := s.bounded(ctx)
	defer stop()
	_, _, err := send(ctx, s, opNone, func() struct{} { return struct{}{} })
	return err
}

func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.leave()
	parent := ctx
	ctx, stop := s.bounded(ctx)
	defer stop()
	if s.d.fault == waitHoldsAConnection {
		select {
		case s.pool <- struct{}{}:
			defer func() { <-s.pool }()
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		}
	}
	w := &wait{woken: make(chan struct{}, 1)}
	s.mu.Lock()
	s.waits[r.Owner], s.held[r.Owner] = w, r.ID
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waits, r.Owner)
	}()
	g, err := s.ask(ctx, r, w)
	if err == nil {
		if s.d.fault == leaseEndsWithItsContext {
			context.AfterFunc(parent, func() { s.d.store.end(driver.Ending{ID: r.ID}) })
		}
		return g, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	s.giveUp(r, err)
	return driver.Grant{}, err
}

func (s *session) ask(ctx context.Context, r driver.Request, w *wait) (driver.Grant, error) {
	var drawn int64
	if s.d.fault == tokenDrawnAhead {
		var err error
		if drawn, _, err = send(ctx, s, opNone, func() int64 { return s.d.store.draw(r.Key) }); err != nil {
			return driver.Grant{}, err
		}
	}
	told := false
	for first := true; ; first = false {
		a := ask{Request: r, from: s, create: first, token: drawn}
		rep, sent, err := send(ctx, s, drivertest.OpAcquire, func() reply {
			if s.d.fault == exclusionIsChecked {
				return s.d.store.askUnguarded(a)
			}
			return s.d.store.ask(a)
		})
		if err != nil {
			return driver.Grant{}, err
		}
		switch rep.kind {
		case grantedReply:
			g := driver.Grant{ID: r.ID, Token: rep.token, Deadline: driver.Deadline(sent, r.TTL), Contended: rep.contended}
			if s.d.fault == marginIsMissing {
				g.Deadline = sent.Add(r.TTL + driver.Margin(r.TTL))
			}
			return g, nil
		case overReply:
			return driver.Grant{}, driver.ErrPlaceLost
		case busyReply:
			return driver.Grant{}, s.heldError(rep)
		}
		if s.d.fault != waiterIsNotToldWhoHolds {
			driver.TakenBy(s.sink, r.ID, rep.holder)
		}
		if !told && s.d.fault != waitingIsNotReported {
			s.sink.Waiting(r.ID)
		}
		told = true
		if err := s.sleep(ctx, w, min(referenceWake/2, rep.remaining+time.Millisecond)); err != nil {
			return driver.Grant{}, err
		}
	}
}

// heldError is the refusal of a request that would not wait.
func (s *session) heldError(rep reply) error {
	if s.d.fault == refusalNamesNobody {
		rep.holder = driver.Origin{}
	}
	return &driver.HeldError{Full: rep.full, RetryAfter: rep.remaining, Holder: rep.holder}
}

// sleep waits for a wake-up, which may be lost, or the time to ask again.
func (s *session) sleep(ctx context.Context, w *wait, d time.Duration) error {
	switch s.d.fault {
	case waiterDoesNotPoll:
		d = time.Hour
	case endOfKeepIsSleptThrough:
		d = 2 * referenceWake
	case wakeUpsAreNotSent:
		d = 10 * referenceWake
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.woken:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// giveUp ends an owner at the store, in the background, until it is answered or
// the TTL has passed.
func (s *session) giveUp(r driver.Request, cause error) {
	var held *driver.HeldError
	if errors.As(cause, &held) && r.Replace == nil || errors.Is(cause, driver.ErrPlaceLost) {
		return
	}
	s.mu.Lock()
	forgotten := s.d.fault == givenUpIsForgotten || s.d.fault == lostReplyLeavesAGhost || s.forgotten == r.Owner
	s.mu.Unlock()
	if forgotten {
		return
	}
	if s.d.fault == withdrawalLeavesAGrant {
		s.d.store.leave(r.ID)
		return
	}
	if s.d.fault == givenUpIsNotBurnt || s.d.fault == replacedIsNotCleanedUp { // and ended by a connection that is not stuck
		s.d.store.end(driver.Ending{ID: r.ID})
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.TTL)
		defer cancel()
		for ctx.Err() == nil {
			_, _, err := send(ctx, s, opNone, func() bool {
				if r.Replace != nil {
					s.d.store.end(*r.Replace)
				}
				return s.d.store.end(driver.Ending{ID: r.ID})
			})
			if err == nil || errors.Is(err, driver.ErrClosed) {
				return
			}
		}
	})
}

func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	type result struct{ held, contended bool }
	out := make([]driver.Renewed, len(rs))
	if err := s.enter(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.leave()
	ctx, stop := s.bounded(ctx)
	defer stop()
	for i, n := range rs {
		if i >= 16 && s.d.fault == batchIsCut {
			break
		}
		res, sent, err := send(ctx, s, drivertest.OpRenew, func() result {
			held, contended := s.d.store.renew(n)
			return result{held, contended}
		})
		switch {
		case err != nil && s.d.fault == failureIsTakenForLoss:
			out[i].Err = driver.ErrNotHeld
		case err != nil:
			out[i].Err = err
		case !res.held:
			out[i].Err = driver.ErrNotHeld
		default:
			out[i] = driver.Renewed{Deadline: driver.Deadline(sent, n.TTL), Contended: res.contended}
		}
		if s.d.fault == batchFailsTogether && out[i].Err != nil {
			for j := range out {
				out[j].Err = out[i].Err
			}
			break
		}
	}
	return out
}

func (s *session) Release(ctx context.Context, es []driver.Ending) []error {
	errs := make([]error, len(es))
	if err := s.enter(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	defer s.leave()
	ctx, stop := s.bounded(ctx)
	defer stop()
	for i, e := range es {
		if i >= 16 && s.d.fault == batchIsCut {
			break
		}
		s.mu.Lock()
		delete(s.held, e.Owner)
		s.mu.Unlock()
		notHeld, _, err := send(ctx, s, drivertest.OpRelease, func() bool { return s.d.end(e) })
		if s.d.fault == writtenIsTheAnswer && e.Written != nil {
			e.Written()
		}
		if err != nil {
			errs[i] = err
		} else if notHeld {
			errs[i] = driver.ErrNotHeld
		}
		if s.d.fault == batchFailsTogether && errs[i] != nil {
			break
		}
	}
	return errs
}

func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.enter(); err != nil {
		return driver.State{}, err
	}
	defer s.leave()
	ctx, stop := s.bounded(ctx)
	defer stop()
	st, _, err := send(ctx, s, opNone, func() driver.State { return s.d.store.inspect(key) })
	if s.d.fault == inspectTakesAPlace {
		s.d.store.ask(ask{Request: driver.Request{ID: driver.ID{Key: key, Owner: driver.Owner{1}}, TTL: time.Minute, Wait: st.Held}, from: s, create: st.Held})
	}
	return st, err
}

func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	ctx, stop := s.bounded(ctx)
	defer stop()
	_, _, err := send(ctx, s, opNone, func() struct{} { s.d.store.oust(key, upTo); return struct{}{} })
	return err
}

func (s *session) Close(ctx context.Context) error {
	if s.d.fault == closedSessionServes {
		return nil
	}
	first := false
	s.once.Do(func() {
		first = true
		s.mu.Lock()
		close(s.closing)
		s.mu.Unlock()
		if s.d.fault == goroutineOutlivesSession {
			go func() { <-make(chan struct{}) }()
		}
	})
	if !first {
		return nil
	}
	if s.d.fault == closeReleases {
		s.mu.Lock()
		held := s.held
		s.held = nil
		s.mu.Unlock()
		for _, id := range held {
			s.d.store.end(driver.Ending{ID: id})
		}
	}
	clean := make(chan struct{})
	go func() {
		s.running.Wait()
		close(clean)
	}()
	var err error
	select {
	case <-clean:
	case <-ctx.Done():
		err = ctx.Err()
	}
	close(s.dead)
	<-clean
	s.requests.Wait()
	return err
}
