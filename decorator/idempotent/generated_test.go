package idempotent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

// results are those of a function that lockgen puts a guard around.
type results struct {
	R0 receipt
	R1 []string
}

// guard is one of sales.
func (s *shop) guard() *idempotent.Guard[payment] {
	s.Helper()
	g, err := idempotent.NewGuard(s.locks, core.Policy{Key: "pay:{Account}:{ID}"}, s.store, idempotent.Policy{Died: idempotent.Refuse}, core.Fields[payment]())
	if err != nil {
		s.Fatal(err)
	}
	return g
}

func TestCallReplaysAllResultsOfEqualArguments(t *testing.T) {
	inShop(t, func(s *shop) {
		g := s.guard()
		run := func(args []any, number int, kind error) {
			s.Helper()
			got, err := idempotent.Call(s.Context(), g, sale, args, func(context.Context) (results, error) {
				return results{receipt{int(s.ran.Add(1))}, []string{"a", "b"}}, nil
			})
			if got.R0.Number != number || (len(got.R1) == 2) != (kind == nil) || !errors.Is(err, kind) || (err == nil) != (kind == nil) {
				s.Errorf("%v: got %+v, %v; want %d, %v", args, got, err, number, kind)
			}
		}
		run([]any{"A-1", 100, []int(nil)}, 1, nil)
		run([]any{"A-1", 100, []int(nil)}, 1, nil)
		run([]any{"A-1", 200, []int(nil)}, 0, idempotent.ErrMismatch)
		run([]any{"A-1", 100}, 0, idempotent.ErrMismatch)
		run([]any{"A-1", func() {}}, 0, idempotent.ErrMismatch)
		time.Sleep(24 * time.Hour)
		run([]any{"A-1", 200, []int(nil)}, 2, nil)
	})
}

func TestCallReturnsAnErrorWithTheResultsAndKeepsNeither(t *testing.T) {
	inShop(t, func(s *shop) {
		g, soldOut := s.guard(), errors.New("sold out")
		for want := 1; want <= 2; want++ {
			got, err := idempotent.Call(s.Context(), g, sale, nil, func(context.Context) (results, error) {
				return results{R0: receipt{int(s.ran.Add(1))}}, soldOut
			})
			if got.R0.Number != want || err != soldOut {
				s.Errorf("got %+v, %v; want %d", got, err, want)
			}
		}
	})
}

func TestCallDoesNotRunAgainForAResultThatCannotBeReplayed(t *testing.T) {
	inShop(t, func(s *shop) {
		g := s.guard()
		run := func() (struct{ R0 any }, error) {
			return idempotent.Call(s.Context(), g, sale, nil, func(context.Context) (struct{ R0 any }, error) {
				s.ran.Add(1)
				return struct{ R0 any }{make(chan int)}, nil
			})
		}
		if got, err := run(); got.R0 == nil || err != nil {
			s.Errorf("the first call: %v, %v", got, err)
		}
		if got, err := run(); got.R0 != nil || !errors.Is(err, idempotent.ErrNoReplay) {
			s.Errorf("a repeated one: %v, %v", got, err)
		}
		if n := s.ran.Load(); n != 1 {
			s.Errorf("ran %d times", n)
		}
	})
}
