package databases_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

func (d *database) engine(t *testing.T, db *sql.DB) *core.Engine {
	t.Helper()
	e, err := core.New(d.locks(t, db), core.WithNamespace("test"), core.WithStoreTimeout(storeTimeout),
		core.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// TestSeveralKeysTakeFewConnectionsOfThePool takes twelve keys, of which one is taken at first.
func TestSeveralKeysTakeFewConnectionsOfThePool(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		pool := d.Connect(t, d.On.Addr(), d.options)
		cart, other := d.engine(t, pool), d.engine(t, d.DB)
		p := core.Policy{TTL: longTTL, Wait: core.Forever}
		for i := range 12 {
			p.Keys = append(p.Keys, fmt.Sprintf("k%02d", i))
		}
		held, err := other.Acquire(t.Context(), core.Policy{Key: "k05", TTL: longTTL})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(300*time.Millisecond, func() { _ = held.Release(context.Background()) })
		l, err := cart.Acquire(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if held.Err() == nil {
			t.Error("a key has two holders")
		}
		if n := len(l.Keys()); n != 12 {
			t.Errorf("%d keys", n)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Four requests at a time, and what polls, renews and sweeps beside them.
		if n := pool.Stats().OpenConnections; n > 4+3 {
			t.Errorf("%d connections were used at a time", n)
		}
	})
}
