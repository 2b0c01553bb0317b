package twinlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// The two stores.
const (
	from = iota // that the service leaves
	to          // that it goes to
	sides
)

type twin struct {
	stores   [sides]driver.Driver
	switchAt int64 // in microseconds since 1970; 0: the tokens stay the old store's
}

// Option configures a driver.
type Option func(*twin)

// SwitchTokensAt has leases bear the new store's tokens from that time on, by the clock of
// the store whose tokens are the time, and the old store's until then. Exactly one of the
// stores has such tokens (ClockTokens: Redis, redlock, SQL; not memory). It is the same time in all processes, in the future
// when the first of them starts, and after the last process of step 1 has ended: see the
// package comment. The zero time, and the default, is never.
func SwitchTokensAt(t time.Time) Option {
	return func(d *twin) {
		if !t.IsZero() {
			d.switchAt = t.UnixMicro()
		}
	}
}

// New returns a driver whose leases are leases of both drivers: of the old store, which
// a service leaves, and of the new one. It is as safe for concurrent use as they are. If
// one of them is nil, the engine that is made on it says so.
func New(oldStore, newStore driver.Driver, opts ...Option) driver.Driver {
	t := twin{stores: [sides]driver.Driver{oldStore, newStore}}
	for _, o := range opts {
		if o != nil {
			o(&t)
		}
	}
	return t
}

// token is that of a lease with these of its stores.
func (t twin) token(oldToken, newToken int64) int64 {
	switch {
	case t.switchAt == 0 || oldToken == 0 || newToken == 0:
		return oldToken
	case t.stores[from].Capabilities().Tokens == driver.ClockTokens && oldToken >= t.switchAt:
		return t.switchAt + newToken // as core.WithTokensAfter has it
	case t.stores[to].Capabilities().Tokens == driver.ClockTokens && newToken >= t.switchAt:
		return newToken
	}
	return oldToken
}

// Capabilities are what both offer, with the tokens of the old store. A lease cannot be
// ended by force: its tokens at the two stores differ.
func (t twin) Capabilities() driver.Capabilities {
	if t.check() != nil {
		return driver.Capabilities{Name: "twin"}
	}
	a, b := t.stores[from].Capabilities(), t.stores[to].Capabilities()
	return driver.Capabilities{
		Name:    a.Name + "+" + b.Name,
		Address: strings.Trim(a.Address+"; "+b.Address, "; "),
		Modes:   slices.DeleteFunc(slices.Clone(a.Modes), func(m driver.Mode) bool { return !slices.Contains(b.Modes, m) }),
		MinTTL:  max(a.MinTTL, b.MinTTL),
		Tokens:  a.Tokens,
		Strict:  a.Strict && b.Strict,
		Keep:    a.Keep && b.Keep,
		Recall:  a.Recall && b.Recall,
		Bounds:  a.Bounds, // who has a place at the old store is let in at the new one
		Wake:    a.Wake + b.Wake,

		LateTokens: a.LateTokens || b.LateTokens,

		Identity: a.Identity && b.Identity,
		Trace:    a.Trace && b.Trace,
	}
}

// Uses reports whether either driver uses the pool.
func (t twin) Uses(pool any) bool {
	return slices.ContainsFunc(t.stores[:], func(d driver.Driver) bool {
		p, ok := d.(driver.Pooled)
		return ok && p.Uses(pool)
	})
}

func (t twin) check() error {
	for side, name := range [sides]string{"old", "new"} {
		if t.stores[side] == nil {
			return fmt.Errorf("open a session with two stores: the driver of the %s one is nil", name)
		}
	}
	a, b := t.stores[from].Capabilities().Tokens, t.stores[to].Capabilities().Tokens
	switch {
	case t.switchAt < 0:
		return errors.New("open a session with two stores: SwitchTokensAt is before 1970; use a time in the near future")
	case t.switchAt > 0 && (a == driver.NoTokens || b == driver.NoTokens || (a == driver.ClockTokens) == (b == driver.ClockTokens)):
		return fmt.Errorf("open a session with two stores: SwitchTokensAt is for a store whose tokens are the time and one whose are not; these have %s and %s ones: leave it out", a, b)
	}
	return nil
}

// Open starts a session at each store.
func (t twin) Open(c driver.Config) (driver.Session, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if c.Sink == nil || c.StoreTimeout <= 0 {
		return nil, errors.New("open a session with two stores: Config needs a Sink and a positive StoreTimeout")
	}
	s := &session{twin: t, sink: c.Sink, timeout: c.StoreTimeout, claims: make(map[driver.Owner]*claim)}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for side, d := range t.stores {
		one, err := d.Open(driver.Config{Sink: ear{s, side}, StoreTimeout: c.StoreTimeout, Identity: c.Identity})
		if err != nil {
			if side == to {
				_ = s.stores[from].Close(context.Background()) // it has done nothing
			}
			return nil, err
		}
		s.stores[side] = one
	}
	return s, nil
}

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
