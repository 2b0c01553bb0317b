package decorator_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator"
)

// bubble runs a test with a till of its own and a clock that costs no time.
func bubble(t *testing.T, name string, test func(t *testing.T, s *till)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, newTill(t)) })
	})
}

func TestTransactionCommitsInsideTheLock(t *testing.T) {
	bubble(t, "once", func(t *testing.T, s *till) {
		out, _, err := s.run(t.Context(), func(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
			if l, ok := core.LeaseFrom(ctx); !ok || l.Key() != "stock:A" {
				t.Error("the context has no lease")
			}
			return sell(ctx, tx, d)
		})
		if out != (receipt{2}) || err != nil {
			t.Errorf("got %v, %v", out, err)
		}
		if got, want := s.All(), "begin admit exec check commit release"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestTransactionOfSeveralKeysWritesTheTokenOfEach(t *testing.T) {
	for _, lose := range []string{"", "stock:A", "count:2"} {
		bubble(t, "losing "+lose, func(t *testing.T, s *till) {
			p := core.Policy{Keys: []string{"stock:{SKU}", "count:{Count}"}}
			_, err := decorator.WithLockTx(s.Engine, p, s.db, func(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
				for _, key := range []string{"stock:A", "count:2"} {
					if err := core.AssertHeld(ctx, key); err != nil {
						t.Error(err)
					}
				}
				if lose != "" {
					s.Store.Expire("shop/" + lose)
				}
				return receipt{d.Count}, nil
			})(t.Context(), deduction{"A", 2})
			events := s.All()
			switch {
			case lose == "" && (err != nil || events != "begin admit admit check check commit release release"):
				t.Errorf("%v: %s", err, events)
			// What is lost is ended at the store as well, at once; the other one later.
			case lose != "" && (!errors.Is(err, core.ErrLost) || s.Count("admit") != 2 || s.Count("commit") != 0 || !strings.HasSuffix(s.All("check"), "rollback release") && !strings.HasSuffix(s.All("check"), "rollback release release")):
				t.Errorf("%v: %s", err, events)
			}
		})
	}
}

// TestLostLeaseNeverCommits loses the lease at each step of a call.
func TestLostLeaseNeverCommits(t *testing.T) {
	own := errors.New("own")
	for _, tc := range []struct {
		name   string
		at     string // the event at which the lease is lost; empty is in the function
		fn     txFunc
		events string
		own    bool // the function's error is found beside the loss
	}{
		{"before the transaction has begun", "begin", sell, "begin rollback", false},
		{"while the token is written", "admit", sell, "begin admit rollback", false},
		{"in a statement", "exec", sell, "begin admit exec rollback", false},
		{"in the function, which does not care", "", func(context.Context, *sql.Tx, deduction) (receipt, error) {
			return receipt{2}, nil
		}, "begin admit rollback", false},
		{"in the function, which waits for it", "", func(ctx context.Context, _ *sql.Tx, _ deduction) (receipt, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), core.ErrLost) {
				return receipt{}, errors.New("the cause is not the loss")
			}
			return receipt{}, own
		}, "begin admit rollback", true},
		{"in the function, which is rolled back meanwhile", "", func(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
			synctest.Wait()
			if _, err := sell(context.WithoutCancel(ctx), tx, d); !errors.Is(err, sql.ErrTxDone) {
				return receipt{}, errors.New("the transaction outlived its lease")
			}
			return receipt{}, own
		}, "begin admit rollback", true},
		{"after the function, before the store is asked", "check", sell, "begin admit exec check rollback", false},
	} {
		bubble(t, tc.name, func(t *testing.T, s *till) {
			if tc.at != "" {
				s.On(tc.at, s.lose)
			}
			_, _, err := s.run(t.Context(), func(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
				if tc.at == "" {
					_ = s.lose(ctx)
				}
				return tc.fn(ctx, tx, d)
			})
			if !errors.Is(err, core.ErrLost) || errors.Is(err, own) != tc.own {
				t.Errorf("got %v", err)
			}
			var e *core.Error
			if !errors.As(err, &e) || e.Policy != "stock:{SKU}" {
				t.Errorf("got %v", err)
			}
			if tc.at == "begin" {
				synctest.Wait() // the roll-back of nothing is not waited for
			}
			// The engine ends the lost lease at the store whenever it likes.
			if got := s.All("release"); got != tc.events {
				t.Errorf("got  %s\nwant %s", got, tc.events)
			}
		})
	}
}

func TestLockIsReleasedAfterTheTransaction(t *testing.T) {
	own := errors.New("own")
	down := errors.New("down")
	for _, tc := range []struct {
		name   string
		at     string
		hook   func(s *till) error
		fn     txFunc
		events string
		want   error
	}{
		{"the function fails", "", nil, func(context.Context, *sql.Tx, deduction) (receipt, error) { return receipt{}, own }, "begin admit rollback release", own},
		{"the function panics", "", nil, func(context.Context, *sql.Tx, deduction) (receipt, error) { panic(own) }, "begin admit rollback release", nil},
		{"the function exits", "", nil, func(context.Context, *sql.Tx, deduction) (receipt, error) { runtime.Goexit(); return receipt{}, nil }, "begin admit rollback release", nil},
		{"the transaction does not begin", "begin", func(*till) error { return down }, sell, "begin release", down},
		{"the token is stale", "admit", func(*till) error { return fence.ErrStale }, sell, "begin admit rollback release", fence.ErrStale},
		{"the token is not written", "admit", func(*till) error { return down }, sell, "begin admit rollback release", down},
		{"the connection breaks while the token is written", "admit", func(s *till) error {
			s.On("rollback", func(context.Context) error { return driver.ErrBadConn })
			return driver.ErrBadConn
		}, sell, "begin admit rollback release", driver.ErrBadConn},
		{"the store is silent", "check", func(s *till) error {
			s.Store.Fail(down)
			s.On("rollback", func(context.Context) error { s.Store.Heal(); return nil })
			return nil
		}, sell, "begin admit exec check rollback release", core.ErrUnavailable},
		{"the database refuses to commit", "commit", func(*till) error { return sqlState("40001") }, sell, "begin admit exec check commit release", sqlState("40001")},
		// What follows is the wait for the end of a transaction whose connection broke.
		{"the connection breaks in the commit", "commit", once(driver.ErrBadConn), sell, "begin admit exec check commit begin admit commit release", decorator.ErrCommitUnknown},
		{"the operator ends the commit", "commit", once(sqlState("57P01")), sell, "begin admit exec check commit begin admit commit release", decorator.ErrCommitUnknown},
		{"the connection breaks in the roll-back", "rollback", once(driver.ErrBadConn), func(context.Context, *sql.Tx, deduction) (receipt, error) { return receipt{}, own }, "begin admit rollback begin admit commit release", own},
		{"the function commits", "", nil, func(_ context.Context, tx *sql.Tx, _ deduction) (receipt, error) { return receipt{}, tx.Commit() }, "begin admit commit check release", decorator.ErrCommitUnknown},
		{"the function rolls back", "", nil, func(_ context.Context, tx *sql.Tx, _ deduction) (receipt, error) { return receipt{}, tx.Rollback() }, "begin admit rollback check release", sql.ErrTxDone},
	} {
		bubble(t, tc.name, func(t *testing.T, s *till) {
			if tc.hook != nil {
				s.On(tc.at, func(context.Context) error { return tc.hook(s) })
			}
			_, recovered, err := s.run(t.Context(), tc.fn)
			if recovered != nil {
				if tc.want != nil || recovered != any(own) && recovered != "goexit" {
					t.Errorf("recovered %v", recovered)
				}
			} else if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if got := s.All(); got != tc.events {
				t.Errorf("got  %s\nwant %s", got, tc.events)
			}
		})
	}
}

// sqlState is an error as drivers of PostgreSQL have them.
type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

func once(err error) func(*till) error {
	left := []error{err}
	return func(*till) (err error) {
		if len(left) > 0 {
			err, left = left[0], nil
		}
		return err
	}
}

// TestCommitOnItsWayIsNotDisturbed ends the context in every way while the COMMIT is at
// the database: what was committed is reported as such.
func TestCommitOnItsWayIsNotDisturbed(t *testing.T) {
	for _, way := range []string{"lost", "cancelled", "closed"} {
		bubble(t, way, func(t *testing.T, s *till) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			s.On("commit", func(ctx context.Context) error {
				switch way {
				case "lost":
					return s.lose(ctx)
				case "cancelled":
					leave()
				default:
					return s.Engine.Close()
				}
				return nil
			})
			out, _, err := s.run(ctx, sell)
			if out != (receipt{2}) || err != nil {
				t.Errorf("got %v, %v after %s", out, err, s.All())
			}
			if s.Count("rollback") != 0 {
				t.Error(s.All())
			}
		})
	}
}

func TestEndOfTheHoldOrOfTheCallerRollsBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *till, leave func())
		want error
	}{
		{"the caller goes away", func(_ *till, leave func()) { leave() }, context.Canceled},
		{"the engine is closed", func(s *till, _ func()) { _ = s.Engine.Close() }, core.ErrClosed},
		{"the hold is too long", func(*till, func()) { time.Sleep(time.Minute) }, core.ErrMaxHold},
	} {
		bubble(t, tc.name, func(t *testing.T, s *till) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			p := core.Policy{Key: "stock:{SKU}", MaxHold: 30 * time.Second}
			_, err := decorator.WithLockTx(s.Engine, p, s.db, func(context.Context, *sql.Tx, deduction) (receipt, error) {
				tc.end(s, leave)
				return receipt{}, nil
			})(ctx, deduction{SKU: "A"})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
			if s.Count("commit") != 0 || s.Count("rollback") != 1 {
				t.Error(s.All())
			}
		})
	}
}

func TestCallerWhoGoesAwayAfterTheCheckHasNothingCommitted(t *testing.T) {
	bubble(t, "checked", func(t *testing.T, s *till) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		s.On("checked", func(context.Context) error {
			leave()
			synctest.Wait()
			return nil
		})
		if _, _, err := s.run(ctx, sell); !errors.Is(err, context.Canceled) || errors.Is(err, decorator.ErrCommitUnknown) {
			t.Errorf("got %v", err)
		}
		if got, want := s.All(), "begin admit exec check rollback release"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestSilentDatabaseIsWaitedForNoLongerThanItsTimeouts(t *testing.T) {
	bubble(t, "commit", func(t *testing.T, s *till) {
		s.db.EndTimeout = 5 * time.Second
		start := time.Now()
		s.On("commit", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		admits := 0
		s.On("admit", func(ctx context.Context) error {
			if admits++; admits > 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		out, _, err := s.run(t.Context(), sell)
		if out != (receipt{2}) || !errors.Is(err, decorator.ErrCommitUnknown) {
			t.Errorf("got %v, %v", out, err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestFallbackServesACallWhoseTransactionNeverBegan(t *testing.T) {
	instead := decorator.OnBusy(func(context.Context, deduction, error) (receipt, error) { return receipt{-1}, nil })
	bubble(t, "busy", func(t *testing.T, s *till) {
		holdStock(t, s.Engine, "A")
		out, err := decorator.WithLockTx(s.Engine, stock, s.db, sell, instead)(t.Context(), deduction{"A", 1})
		if out != (receipt{-1}) || err != nil || s.Count("begin") != 0 {
			t.Errorf("got %v, %v", out, err)
		}
	})
	bubble(t, "busy inside", func(t *testing.T, s *till) {
		out, err := decorator.WithLockTx(s.Engine, stock, s.db, func(context.Context, *sql.Tx, deduction) (receipt, error) {
			return receipt{7}, core.ErrBusy
		}, instead)(t.Context(), deduction{"A", 1})
		if out != (receipt{7}) || !errors.Is(err, core.ErrBusy) {
			t.Errorf("got %v, %v", out, err)
		}
	})
}
