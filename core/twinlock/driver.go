package twinlock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockaround/lockaround/core/driver"
)

// The two stores.
const (
	from = iota // that the service leaves
	to          // that it goes to
	sides
)

type twin struct{ stores [sides]driver.Driver }

// New returns a driver whose leases are leases of both drivers: of the old store, which
// a service leaves, and of the new one. It is as safe for concurrent use as they are. If
// one of them is nil, the engine that is made on it says so.
func New(oldStore, newStore driver.Driver) driver.Driver {
	return twin{[sides]driver.Driver{oldStore, newStore}}
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
	s := &session{sink: c.Sink, timeout: c.StoreTimeout, claims: make(map[driver.Owner]*claim)}
	s.closing, s.close = context.WithCancelCause(context.Background())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for side, d := range t.stores {
		one, err := d.Open(driver.Config{Sink: ear{s, side}, StoreTimeout: c.StoreTimeout})
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
