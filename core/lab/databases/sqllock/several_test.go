package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/sqllock"
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

func TestFloodIsRefusedBeyondMaxWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand decisions of one key")
	}
	onEachDatabase(t, func(t *testing.T, d *database) {
		suites.Flood(t, 1000, true, func(t testing.TB) driver.Driver { return d.locks(t, d.Connect(t, d.On.Addr(), d.options)) })
	})
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

// TestHolderHearsOfEachWaiterThoughARenewalSaysThatNobodyWaits has one waiter go and the next come
// between two polls, and a renewal in between.
func TestHolderHearsOfEachWaiterThoughARenewalSaysThatNobodyWaits(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		holder, other := open(t, d.locks(t, d.DB, sqllock.WithPoll(time.Second))), open(t, d.locks(t, d.DB))
		g, err := holder.Acquire(t.Context(), request("stock", false))
		if err != nil {
			t.Fatal(err)
		}
		told := func() bool {
			holder.mu.Lock()
			defer holder.mu.Unlock()
			return holder.contended
		}
		wait := func() (leave func()) {
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				if _, err := other.Acquire(ctx, request("stock", true)); !errors.Is(err, context.Canceled) {
					t.Errorf("a wait ends with %v", err)
				}
			}()
			<-other.queued
			return func() { cancel(); <-gone }
		}
		first := wait()
		eventually(t, "a poll that tells of the first waiter", told)
		first()
		places := `SELECT count(*) FROM lockaround_claim WHERE state = 0`
		eventually(t, "the end of the first waiter's place", func() bool { return d.Number(t, places) == 0 })
		r := holder.Renew(t.Context(), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: longTTL}})[0]
		if r.Err != nil || r.Contended {
			t.Fatalf("a renewal while nobody waits: %+v", r)
		}
		holder.mu.Lock()
		holder.sink.contended = r.Contended // an engine goes by that
		holder.mu.Unlock()
		second := wait()
		eventually(t, "a poll that tells of the second waiter", told)
		second()
		if err := holder.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
			t.Error(err)
		}
	})
}

// TestPlaceOutlastsATransactionThatIsStuckOnAnotherKey stops a decision that has granted one of a
// session's two places, and has not committed.
func TestPlaceOutlastsATransactionThatIsStuckOnAnotherKey(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		holder := open(t, d.locks(t, d.DB))
		waiter := openWith(t, d.locks(t, d.DB), 2*patience) // a refresh that waits is not given up
		ctx, leave := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer leave()
		for _, key := range []string{"stuck", "stock"} {
			if _, err := holder.Acquire(t.Context(), request(key, false)); err != nil {
				t.Fatal(err)
			}
			waiting.Go(func() {
				for { // if the machine stalls for as long as a place lasts, that is lost
					if _, err := waiter.Acquire(ctx, request(key, true)); err != driver.ErrPlaceLost {
						return
					}
				}
			})
			<-waiter.queued
		}
		stuck := d.begin(t, nil)
		for _, statement := range []string{
			`SELECT 1 FROM lockaround_lock WHERE lock_key = 'stuck' FOR UPDATE`,
			`UPDATE lockaround_claim SET state = 1 WHERE lock_key = 'stuck' AND state = 0`,
		} {
			if _, err := stuck.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		first := make(map[string]int64)
		eventually(t, "a refresh of the other place", func() bool {
			var owner []byte
			var expires int64
			err := d.QueryRowContext(t.Context(), `SELECT owner, expires_us FROM lockaround_claim WHERE lock_key = 'stock' AND state = 0`).Scan(&owner, &expires)
			if err == sql.ErrNoRows {
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			if first[string(owner)] == 0 {
				first[string(owner)] = expires
			}
			return expires > first[string(owner)]
		})
		if err := stuck.Rollback(); err != nil {
			t.Fatal(err)
		}
	})
}
