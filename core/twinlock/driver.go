package twinlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		Name:   a.Name + "+" + b.Name,
		Modes:  slices.DeleteFunc(slices.Clone(a.Modes), func(m driver.Mode) bool { return !slices.Contains(b.Modes, m) }),
		MinTTL: max(a.MinTTL, b.MinTTL),
		Tokens: a.Tokens,
		Strict: a.Strict && b.Strict,
		Keep:   a.Keep && b.Keep,
		Recall: a.Recall && b.Recall,
		Wake:   a.Wake + b.Wake,

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
