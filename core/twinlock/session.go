package twinlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// session is one engine's connection to both stores.
type session struct {
	twin    twin
	stores  [sides]driver.Session
	sink    driver.Sink
	timeout time.Duration // of one attempt

	closing context.Context // ends when Close begins
	close   context.CancelCauseFunc
	ctx     context.Context // ends when Close has done its work
	cancel  context.CancelFunc

	mu      sync.Mutex
	closed  bool
	claims  map[driver.Owner]*claim
	running sync.WaitGroup // calls of the session's methods
	debts   sync.WaitGroup // leases that are to end, see owe
	workers sync.WaitGroup // goroutines
}

// enter begins a method's call, which ends with s.running.Done.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.running.Add(1)
	return nil
}

// both asks the two stores at the same time.
func (s *session) both(ask func(side int, store driver.Session)) {
	var asked sync.WaitGroup
	asked.Go(func() { ask(to, s.stores[to]) })
	ask(from, s.stores[from])
	asked.Wait()
}

// Ping reports whether both stores answer.
func (s *session) Ping(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	var errs [sides]error
	s.both(func(side int, store driver.Session) { errs[side] = store.Ping(ctx) })
	return errors.Join(errs[:]...)
}

// Inspect reports what both stores have of a key: it is held if either says so. The
// token and, as long as that has any, the holders are the old store's.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.enter(); err != nil {
		return driver.State{}, err
	}
	defer s.running.Done()
	var states [sides]driver.State
	var errs [sides]error
	s.both(func(side int, store driver.Session) { states[side], errs[side] = store.Inspect(ctx, key) })
	if err := errors.Join(errs[:]...); err != nil {
		return driver.State{}, err
	}
	a, b := states[from], states[to]
	st := driver.State{
		Held: a.Held || b.Held, Token: s.twin.token(a.Token, b.Token), Remaining: max(a.Remaining, b.Remaining),
		Waiting: a.Waiting + b.Waiting, Holders: a.Holders,
	}
	if !a.Held {
		st.Holders = b.Holders
	}
	if st.Token != a.Token {
		for i := range st.Holders {
			st.Holders[i].Token = 0 // that of a part is not the lease's
		}
		if len(st.Holders) == 1 {
			st.Holders[0].Token = st.Token
		}
	}
	st.Nodes = slices.Concat(a.Nodes, b.Nodes)
	return st, nil
}

// Oust is not offered.
func (s *session) Oust(context.Context, string, int64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	return &driver.PermanentError{Err: errors.New("a lease of two stores cannot be ended by force: its tokens differ")}
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close(driver.ErrClosed)

	settled := make(chan struct{})
	go func() {
		s.running.Wait()
		s.debts.Wait()
		close(settled)
	}()
	var late error
	select {
	case <-settled:
	case <-ctx.Done():
		late = errors.New("session closed before both stores had confirmed the end of all leases")
	}
	s.cancel()
	var errs [sides]error
	s.both(func(side int, store driver.Session) { errs[side] = store.Close(ctx) })
	if late == nil {
		s.workers.Wait()
	}
	return errors.Join(late, errs[from], errs[to])
}
