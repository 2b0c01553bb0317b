package main

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/embedding"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/functions"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/generic"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/shelf"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/stock"
)

func newLocks(t testing.TB) *core.Engine {
	t.Helper()
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// must is what a constructor returns, unless it is an error.
func must[W any](w W, err error) W {
	if err != nil {
		panic(err)
	}
	return w
}

func TestACallHoldsTheKeysThatItsArgumentsRenderTo(t *testing.T) {
	s := &shop{}
	w := must(stock.Open(newLocks(t), s))
	ctx := t.Context()
	for _, tc := range []struct {
		name string
		call func() error
		want []string
	}{
		{"parameter and field", func() error {
			left, err := w.Deduct(ctx, "a:b", &stock.Request{WarehouseID: 4000000000})
			if left != 7 {
				t.Errorf("left %d", left)
			}
			return err
		}, []string{"stock:a%3Ab:4000000000"}},
		{"a parameter called context", func() error { _, err := w.Count(ctx, "a"); return err }, []string{"stock:a"}},
		{"several keys, sorted", func() error { return w.Move(ctx, 2, -1, 1, 2) }, []string{"place:-1", "place:2"}},
		{"no placeholder", func() error { return w.Audit(ctx) }, []string{"audit"}},
		{"pointers and tags", func() error {
			text, d, err := w.Confirm(ctx, stock.Request{Order: order(-9, true)})
			if text != "confirmed" || d != time.Second {
				t.Errorf("got %q, %v", text, d)
			}
			return err
		}, []string{"order:-9/true"}},
		{"no lock", func() error {
			if w.Name() != "shop" {
				t.Error("the method was not passed on")
			}
			return nil
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.keys = nil
			if err := tc.call(); err != nil || !slices.Equal(s.keys, tc.want) {
				t.Errorf("held %v, %v; want %v", s.keys, err, tc.want)
			}
		})
	}
}

func TestAMissingValueIsRefusedAndTheCallDoesNotRun(t *testing.T) {
	s := &shop{}
	w := must(stock.NewStockWithLock(newLocks(t), s))
	var nilID *int64
	confirm := func(o *stock.Order) error {
		_, _, err := w.Confirm(t.Context(), stock.Request{Order: o})
		return err
	}
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"empty", second(w.Count(t.Context(), "")), "{sku}"},
		{"nil parameter", second(w.Deduct(t.Context(), "a", nil)), "{req.WarehouseID}"},
		{"nil on the way", confirm(nil), "{req.Order.ID}"},
		{"nil at the end", confirm(&stock.Order{}), "{req.Order.ID}"},
		{"pointer to nil", confirm(&stock.Order{ID: &nilID}), "{req.Order.ID}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := tc.err; !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), tc.want) || len(s.keys) > 0 {
				t.Errorf("got %v, held %v", err, s.keys)
			}
		})
	}
}

func TestAnErrorAndAResultComeBackAsTheyAre(t *testing.T) {
	failure := errors.New("sold out")
	s := &shop{do: func(context.Context) error { return failure }}
	w := must(stock.NewStockWithLock(newLocks(t), s))
	if left, err := w.Deduct(t.Context(), "a", &stock.Request{}); left != 7 || err != failure {
		t.Errorf("got %d, %v", left, err)
	}
}

func TestCallsOfAKeyExcludeEachOther(t *testing.T) {
	locks := newLocks(t)
	held, free := make(chan struct{}), make(chan struct{})
	s := &shop{do: func(context.Context) error { close(held); <-free; return nil }}
	w := must(stock.NewStockWithLock(locks, s))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Audit(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-held
	if err := locks.Do(t.Context(), core.Policy{Key: "audit"}, func(context.Context) error { return nil }); !errors.Is(err, core.ErrBusy) {
		t.Errorf("beside a call that holds the key: %v", err)
	}
	if _, err := must(stock.NewStockWithLock(locks, &shop{})).Count(t.Context(), "audit"); err != nil {
		t.Errorf("another key: %v", err)
	}
	close(free)
	wg.Wait()
	if err := locks.Do(t.Context(), core.Policy{Key: "audit"}, func(context.Context) error { return nil }); err != nil {
		t.Errorf("after the call: %v", err)
	}
}

func TestAPanicReleasesTheLock(t *testing.T) {
	s := &shop{do: func(context.Context) error { panic("stop") }}
	w := must(stock.NewStockWithLock(newLocks(t), s))
	func() {
		defer func() {
			if recover() != "stop" {
				t.Error("the panic did not go on")
			}
		}()
		_ = w.Audit(t.Context())
	}()
	s.do = nil
	if err := w.Audit(t.Context()); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestALostLeaseIsTheErrorOfACallThatHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := must(core.New(memlock.New(), core.WithNamespace("test")))
		defer func() { _ = locks.Close() }()
		s := &shop{do: func(ctx context.Context) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), core.ErrMaxHold) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return nil
		}}
		if err := must(stock.NewStockWithLock(locks, s)).Audit(t.Context()); !errors.Is(err, core.ErrMaxHold) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAConstructorRefusesWhatIsNil(t *testing.T) {
	locks := newLocks(t)
	for name, err := range map[string]error{
		"engine":             second(stock.NewStockWithLock(nil, &shop{})),
		"next":               second(stock.NewStockWithLock(locks, nil)),
		"struct":             second(shelf.NewShelfWithLock(locks, nil)),
		"engine of function": second(functions.RefillLocked(nil)),
	} {
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAStructHasItsMethodsWithTheirLocks(t *testing.T) {
	var keys []string
	s := &shelf.Shelf{Left: map[string]int{"a": 5}, Held: func(ctx context.Context) {
		for _, lease := range core.LeasesFrom(ctx) {
			keys = append(keys, lease.Key())
		}
	}}
	locks := newLocks(t)
	w := must(shelf.NewShelfWithLock(locks, s))
	if left, err := w.Deduct(t.Context(), "a"); left != 4 || err != nil || !slices.Equal(keys, []string{"shelf:a"}) {
		t.Errorf("left %d, %v, held %v", left, err, keys)
	}
	if left, err := w.Peek(t.Context(), "a"); left != 4 || err != nil {
		t.Errorf("left %d, %v", left, err)
	}
	keys = nil
	if left, err := w.Twice(t.Context(), "a"); left != 2 || err != nil || len(keys) > 0 {
		t.Errorf("a call to a method of its own: left %d, %v, held %v", left, err, keys)
	}
	if err := w.Open(); err != nil {
		t.Error(err)
	}
	err := locks.Do(t.Context(), core.Policy{Key: "close"}, func(ctx context.Context) error { return w.Close(ctx) })
	if !errors.Is(err, core.ErrDeadlock) || s.Closed != 0 {
		t.Errorf("a promoted method has lost its lock: %v", err)
	}
}

// files implements all interfaces of package embedding.
type files struct{ keys []string }

func (f *files) note(ctx context.Context) error {
	lease, ok := core.LeaseFrom(ctx)
	if ok {
		f.keys = append(f.keys, lease.Key())
	}
	return nil
}
func (f *files) Read(ctx context.Context, _ string) ([]byte, error) { return nil, f.note(ctx) }
func (f *files) Stat(ctx context.Context, _ string) (int, error)    { return 0, f.note(ctx) }
func (f *files) Pack(ctx context.Context) error                     { return f.note(ctx) }
func (f *files) Hush(ctx context.Context) error                     { return f.note(ctx) }

func TestAnEmbeddedInterfaceBringsItsLocks(t *testing.T) {
	locks, f := newLocks(t), &files{}
	w := must(embedding.NewArchiveWithLock(locks, f))
	d := must(embedding.NewDiskWithLock(locks, &embedding.Disk{Archive: f}))
	q := must(embedding.NewQuietWithLock(locks, f))
	b := must(embedding.NewBoxWithLock(locks, &embedding.Box{Inner: embedding.Inner{Quiet: f}}))
	for _, call := range []func() error{
		func() error { return second(w.Read(t.Context(), "x")) },
		func() error { return second(w.Stat(t.Context(), "x")) },
		func() error { return w.Pack(t.Context()) },
		func() error { return second(d.Read(t.Context(), "y")) },
		func() error { return second(q.Read(t.Context(), "z")) },
		func() error { return b.Hush(t.Context()) },
		func() error { return second(b.Read(t.Context(), "b")) },
	} {
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"file:x", "archive", "file:y", "file:z", "quiet", "file:b"}; !slices.Equal(f.keys, want) {
		t.Errorf("held %v, want %v", f.keys, want)
	}
}

type store struct{ generic.Store[string, int] }

func (store) Get(ctx context.Context, key string) (int, error) {
	lease, _ := core.LeaseFrom(ctx)
	return len(lease.Key()), nil
}

func TestGenericTypesAndFunctionsKeepTheirParameters(t *testing.T) {
	locks := newLocks(t)
	w := must(generic.NewStoreWithLock[string, int](locks, store{}))
	if n, err := w.Get(t.Context(), "abc"); n != len("store:abc") || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	m := must(generic.NewMapWithLock(locks, &generic.Map[uint, bool]{}))
	if at, err := m.Swap(t.Context(), 1<<(bits.UintSize-1)); at != 1<<(bits.UintSize-1) || err != nil {
		t.Errorf("got %d, %v", at, err)
	}
	refill := must(functions.RefillLocked(locks))
	if n, err := refill(t.Context(), "k", "a", "b"); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	convert := must(functions.ConvertLocked[int, text, bool, float64](locks))
	if v, err := convert(t.Context(), -3, new(text("x")), "y", true, 1.5); v != 1.5 || err != nil {
		t.Errorf("got %v, %v", v, err)
	}
	if _, err := convert(t.Context(), -3, nil, "y", true, 1.5); !errors.Is(err, core.ErrKey) {
		t.Errorf("a nil pointer to a type parameter: %v", err)
	}
}

type text string

func (t text) String() string { return string(t) }
