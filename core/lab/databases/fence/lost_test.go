package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

// loss is a moment in a transaction at which its lease is lost.
type loss struct {
	name   string
	panics bool
	fn     func(ctx context.Context, d *database, tx *sql.Tx, lose func()) error
}

func losses(t testing.TB, w *witness) []loss {
	return []loss{
		{name: "and the function does not care", fn: func(_ context.Context, _ *database, _ *sql.Tx, lose func()) error {
			lose()
			return nil
		}},
		{name: "and the function stops", fn: func(ctx context.Context, _ *database, _ *sql.Tx, lose func()) error {
			lose()
			<-ctx.Done()
			return ctx.Err()
		}},
		{name: "and the function writes on", fn: func(_ context.Context, _ *database, tx *sql.Tx, lose func()) error {
			lose()
			_, err := tx.Exec(`INSERT INTO work VALUES ('late')`)
			return err
		}},
		{name: "and the function panics", panics: true, fn: func(_ context.Context, _ *database, _ *sql.Tx, lose func()) error {
			lose()
			panic("own")
		}},
		{name: "in a statement", fn: func(ctx context.Context, d *database, tx *sql.Tx, lose func()) error {
			return d.sleep(ctx, t, tx, func(int64) { lose() })
		}},
		{name: "after the function, before the store is asked", fn: func(_ context.Context, _ *database, _ *sql.Tx, lose func()) error {
			w.before(lose)
			return nil
		}},
	}
}

// shop is two processes on one store.
type shop struct {
	*database
	*witness
	loser, next *core.Engine
	waits       chan struct{} // one for each time that next waits for the lock
}

func newShop(t testing.TB, d *database) *shop {
	d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
	s := &shop{database: d, witness: &witness{Driver: memlock.New()}, waits: make(chan struct{}, 1)}
	s.loser, s.next = newEngine(t, s.witness), newEngine(t, queued{s.Driver, s.waits})
	return s
}

// lose loses the lease of a transaction while the next holder waits for it. It returns
// what that one sees as soon as it is in its own transaction, and what is to be seen
// when the loser's call returns.
func (s *shop) lose(t *testing.T, run guarded, l loss, id string) (seen, left string, err error) {
	var status func() string
	look := run(s.next, s.database, func(context.Context, *sql.Tx, string) (struct{}, error) {
		seen = status()
		return struct{}{}, nil
	})
	looked := make(chan error, 1)
	work := run(s.loser, s.database, func(ctx context.Context, tx *sql.Tx, _ string) (_ struct{}, err error) {
		if status, err = s.work(ctx, tx, id); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := look(t.Context(), "A-1")
			looked <- err
		}()
		<-s.waits
		return struct{}{}, l.fn(ctx, s.database, tx, func() {
			if !s.Expire("shop/stock:A-1") {
				t.Errorf("%s: nothing was locked", id)
			}
		})
	})
	func() {
		defer func() { _ = recover() }()
		_, err = work(t.Context(), "A-1")
	}()
	left = status()
	if err := <-looked; err != nil {
		t.Errorf("%s: the next holder: %v", id, err)
	}
	return seen, left, err
}

func TestTransactionWhoseLeaseIsLostNeverCommits(t *testing.T) {
	rounds := map[string]int{postgres.Name: 100, mariadb.Name: 20}
	each(t, func(t *testing.T, d *database) {
		s := newShop(t, d)
		all, ended := losses(t, s.witness), map[string]int{}
		for round := range rounds[d.name] {
			l := all[round%len(all)]
			id := fmt.Sprintf("round %d, %s", round, l.name)
			seen, left, err := s.lose(t, correct, l, id)
			if seen != "aborted" {
				t.Errorf("%s: the next holder saw the transaction %s", id, seen)
			}
			if left != "aborted" {
				t.Errorf("%s: when the call returned the transaction was %s", id, left)
			}
			if !l.panics && !errors.Is(err, core.ErrLost) {
				t.Errorf("%s: got %v", id, err)
			}
			ended[left]++
		}
		if n := d.Number(t, `SELECT count(*) FROM work`); n != 0 {
			t.Errorf("%d lost transactions have left rows", n)
		}
		t.Logf("transactions when their calls returned: %v", ended)
	})
}

// TestTransactionThatKnowsNoLeaseCommitsWithoutOne is that the test above can fail.
func TestTransactionThatKnowsNoLeaseCommitsWithoutOne(t *testing.T) {
	unaware := func(e *core.Engine, d *database, fn func(context.Context, *sql.Tx, string) (struct{}, error)) func(context.Context, string) (struct{}, error) {
		return decorator.WithLock(e, stock, func(ctx context.Context, sku string) (struct{}, error) {
			tx, err := d.BeginTx(context.WithoutCancel(ctx), nil)
			if err != nil {
				return struct{}{}, err
			}
			defer func() { _ = tx.Rollback() }()
			if out, err := fn(ctx, tx, sku); err != nil {
				return out, err
			}
			return struct{}{}, tx.Commit()
		})
	}
	each(t, func(t *testing.T, d *database) {
		s := newShop(t, d)
		l := losses(t, s.witness)[0]
		if seen, left, _ := s.lose(t, unaware, l, l.name); seen == "aborted" || left != "committed" {
			t.Errorf("the next holder saw the transaction %s, and when the call returned it was %s", seen, left)
		}
	})
}

// TestLateWritesOfAPausedHolderAreRefused has a holder that does not notice that it was
// paused for three times its TTL, and writes with what it has: 1,000 transactions.
func TestLateWritesOfAPausedHolderAreRefused(t *testing.T) {
	const writes = 1000
	each(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
		clock := memlock.NewClock(time.Now())
		store := memlock.New(memlock.WithClock(clock))
		paused, other := newEngine(t, store), newEngine(t, store)
		old, err := paused.Acquire(t.Context(), core.Policy{Key: "stock:A-1"})
		if err != nil {
			t.Fatal(err)
		}
		token := fence.Token{Key: old.Key(), Number: old.Token()}
		if err := d.admit(t, nil, token); err != nil {
			t.Fatalf("before the pause: %v", err)
		}
		clock.Advance(3 * core.DefaultTTL)
		next := decorator.WithLockTx(other, stock, decorator.Database{DB: d.DB, Fence: d.fence}, func(context.Context, *sql.Tx, string) (struct{}, error) {
			return struct{}{}, nil
		})
		if _, err := next(t.Context(), "A-1"); err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for i := range writes {
			tx := d.begin(t, nil)
			err := d.fence.Admit(t.Context(), tx, token)
			if err == nil {
				accepted++
				if _, err = d.work(t.Context(), tx, fmt.Sprint(i)); err == nil {
					err = tx.Commit()
				}
			}
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Fatal(err)
			}
			_ = tx.Rollback() // where it was refused
		}
		if n := d.Number(t, `SELECT count(*) FROM work`); accepted != 0 || n != 0 {
			t.Errorf("of %d late writes %d were accepted and %d are there", writes, accepted, n)
		}
		_ = old.Release(t.Context()) // it was lost
	})
}
