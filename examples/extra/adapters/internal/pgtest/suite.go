package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
)

// Policy is that of the lock around a sale.
var Policy = core.Policy{Key: "stock:{SKU}", Wait: core.Forever}

// Sale takes units of a product from the table stock. Inside, if it is not nil, runs in the
// transaction when that is done, and its error is the function's.
type Sale struct {
	SKU    string
	Units  int
	Inside func(context.Context) error
}

// Sell makes a sale and returns how many units are left.
type Sell = func(context.Context, Sale) (left int, err error)

// Shop is a database with products A and B, of which there are 100 each, and a fence table.
type Shop struct {
	URL   string
	DB    *sql.DB
	Fence *fence.SQL
	Store *memlock.Driver
}

// Open makes a shop.
func Open(t *testing.T) *Shop {
	t.Helper()
	s := &Shop{URL: URL(t), Store: memlock.New()}
	var err error
	if s.DB, err = sql.Open("pgx", s.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DB.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.Fence, err = fence.NewSQL(fence.PostgreSQL, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Fence.Migrate(t.Context(), s.DB); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`CREATE TABLE stock (sku text PRIMARY KEY, units integer NOT NULL)`, `INSERT INTO stock VALUES ('A', 100), ('B', 100)`} {
		if _, err := s.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Locks is the engine of one process.
func (s *Shop) Locks(t *testing.T) *core.Engine {
	t.Helper()
	locks, err := core.New(s.Store, core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

// Left is how many units of A are left, whatever transactions are under way.
func (s *Shop) Left(t *testing.T) (units int) {
	t.Helper()
	if err := s.DB.QueryRowContext(t.Context(), `SELECT units FROM stock WHERE sku = 'A'`).Scan(&units); err != nil {
		t.Fatal(err)
	}
	return units
}

// Suite tries an adapter. open returns what it makes of Policy and a function that makes the
// sale: it reads the units, writes what is left of them and runs Inside, in this order.
func Suite(t *testing.T, open func(t *testing.T, s *Shop, locks *core.Engine) Sell) {
	t.Run("no sale is lost", func(t *testing.T) {
		s := Open(t)
		var all sync.WaitGroup
		for range 2 {
			sell := open(t, s, s.Locks(t))
			for range 20 {
				all.Go(func() {
					if _, err := sell(t.Context(), Sale{SKU: "A", Units: 1}); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		if left := s.Left(t); left != 60 {
			t.Errorf("%d units are left, want 60", left)
		}
	})
	t.Run("another product is sold meanwhile", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		left, err := sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: func(context.Context) error {
			left, err := sell(t.Context(), Sale{SKU: "B", Units: 2})
			if left != 98 {
				t.Errorf("%d units of B are left", left)
			}
			return err
		}})
		if left != 99 || err != nil || s.Left(t) != 99 {
			t.Errorf("%d units of A are left: %v", left, err)
		}
	})
	soldOut := errors.New("sold out")
	t.Run("an error rolls back", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		fails := func(context.Context) error { return soldOut }
		if left, err := sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: fails}); left != 99 || !errors.Is(err, soldOut) {
			t.Errorf("%d, %v; want 99 beside the function's error", left, err)
		}
		if left, err := sell(t.Context(), Sale{SKU: "A", Units: 1}); left != 99 || err != nil {
			t.Errorf("the next sale leaves %d: %v", left, err)
		}
	})
	t.Run("a panic rolls back", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		func() {
			defer func() {
				if recover() != "sold out" {
					t.Error("the panic does not go on")
				}
			}()
			_, _ = sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: func(context.Context) error { panic("sold out") }})
		}()
		if left, err := sell(t.Context(), Sale{SKU: "A", Units: 1}); left != 99 || err != nil {
			t.Errorf("the next sale leaves %d: %v", left, err)
		}
	})
	for name, after := range map[string]error{"a lost lock rolls back": nil, "a lost lock rolls back beside an error": soldOut} {
		t.Run(name, func(t *testing.T) {
			s := Open(t)
			sell := open(t, s, s.Locks(t))
			_, err := sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: func(ctx context.Context) error {
				s.Store.Expire("shop/stock:A")
				<-ctx.Done()
				return after
			}})
			if !errors.Is(err, core.ErrLost) || after != nil && !errors.Is(err, after) || s.Left(t) != 100 {
				t.Errorf("%d units are left: %v; want 100 and %v", s.Left(t), err, core.ErrLost)
			}
		})
	}
	t.Run("a later holder's token is respected", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		if _, err := s.DB.ExecContext(t.Context(), `INSERT INTO lockaround_fence (lock_key, token) VALUES ('stock:A', 9223372036854775807)`); err != nil {
			t.Fatal(err)
		}
		_, err := sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: func(context.Context) error {
			t.Error("the sale is made")
			return nil
		}})
		if !errors.Is(err, fence.ErrStale) || s.Left(t) != 100 {
			t.Errorf("%d units are left: %v; want 100 and %v", s.Left(t), err, fence.ErrStale)
		}
	})
	t.Run("a transaction in itself is refused", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		_, err := sell(t.Context(), Sale{SKU: "A", Units: 1, Inside: func(ctx context.Context) error {
			_, err := sell(ctx, Sale{SKU: "A", Units: 1})
			return err
		}})
		if !errors.Is(err, core.ErrDeadlock) || s.Left(t) != 100 {
			t.Errorf("%d units are left: %v; want 100 and %v", s.Left(t), err, core.ErrDeadlock)
		}
	})
	t.Run("a cancelled caller rolls back", func(t *testing.T) {
		s := Open(t)
		sell := open(t, s, s.Locks(t))
		ctx, cancel := context.WithCancel(t.Context())
		_, err := sell(ctx, Sale{SKU: "A", Units: 1, Inside: func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		}})
		if err == nil || s.Left(t) != 100 {
			t.Errorf("%d units are left: %v; want 100 and an error", s.Left(t), err)
		}
	})
}
