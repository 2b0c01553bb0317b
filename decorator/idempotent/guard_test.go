package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/reason"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/idempotenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsAllPromises(t *testing.T) {
	idempotenttest.RunInBubble(t, func(*testing.T) idempotent.Store { return idempotent.NewMemory(1000) })
}

func TestFullMemoryRefusesAndForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := idempotent.NewMemory(2)
		begin := func(key string) error {
			_, err := m.Begin(t.Context(), key, idempotent.Claim{Run: idempotent.Run{1}, Alone: time.Second, Keep: time.Minute})
			return err
		}
		if a, b, c, again := begin("a"), begin("b"), begin("c"), begin("a"); a != nil || b != nil || c == nil || again != nil {
			t.Errorf("%v, %v, %v, %v", a, b, c, again)
		}
		time.Sleep(time.Minute)
		if err := begin("c"); err != nil {
			t.Errorf("there is room again: %v", err)
		}
	})
}

type payment struct {
	Account, ID string
	Cents       int
}

type receipt struct{ Number int }

// shop is an engine with a store whose requests can fail.
type shop struct {
	*testing.T
	keys  *memlock.Driver
	locks *core.Engine
	store *failing
	ran   atomic.Int32
}

// failing is a store that fails while down says so. late failures are carried out; slow replies take a second.
type failing struct {
	idempotent.Store
	down, late, slow atomic.Bool
	asked            atomic.Int32
}

var errDown = errors.New("no route to host")

func (f *failing) fails(do func() error) error {
	f.asked.Add(1)
	if f.down.Load() {
		return errDown
	}
	slow := f.slow.Load()
	err := do()
	if slow {
		time.Sleep(time.Second)
	}
	if f.late.Load() {
		return errDown
	}
	return err
}

func (f *failing) Begin(ctx context.Context, key string, c idempotent.Claim) (r idempotent.Record, err error) {
	err = f.fails(func() error { r, err = f.Store.Begin(ctx, key, c); return err })
	if err != nil {
		return idempotent.Record{}, err
	}
	return r, nil
}

func (f *failing) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	err = f.fails(func() error { stored, err = f.Store.Finish(ctx, key, c, answer); return err })
	return stored, err
}

func (f *failing) GiveUp(ctx context.Context, key string, c idempotent.Claim) error {
	return f.fails(func() error { return f.Store.GiveUp(ctx, key, c) })
}

// inShop runs a test in a bubble.
func inShop(t *testing.T, test func(s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		keys := memlock.New()
		locks, err := core.New(keys, core.WithNamespace("shop"), core.WithForceRelease())
		if err != nil {
			t.Fatal(err)
		}
		test(&shop{T: t, keys: keys, locks: locks, store: &failing{Store: idempotent.NewMemory(10_000)}})
		time.Sleep(time.Minute) // what goes on in the background has ended
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pay is a function that counts its runs, and does do in each.
func (s *shop) pay(wait time.Duration, died idempotent.DiedMode, do func(context.Context) error) *idempotent.Func[payment, receipt] {
	return idempotent.Must(s.locks, core.Policy{Key: "pay:{Account}:{ID}", Wait: wait}, s.store, func(ctx context.Context, _ payment) (receipt, error) {
		n := int(s.ran.Add(1))
		if do != nil {
			if err := do(ctx); err != nil {
				return receipt{}, err
			}
		}
		return receipt{n}, nil
	}, idempotent.Policy{Died: died})
}

var sale = payment{"A-1", "8e03978e", 100}

// gets calls, and checks the number of the receipt, or the kind of the error.
func (s *shop) gets(f *idempotent.Func[payment, receipt], in payment, number int, kind error) {
	s.Helper()
	got, err := f.Call(s.Context(), in)
	if got.Number != number || !errors.Is(err, kind) || (err == nil) != (kind == nil) {
		s.Errorf("got %+v, %v; want %d, %v", got, err, number, kind)
	}
}

func TestRepeatedCallGetsTheFirstAnswer(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Rerun, nil)
		s.gets(f, sale, 1, nil)
		s.gets(f, sale, 1, nil)
		s.gets(f, payment{"A-2", sale.ID, 100}, 2, nil) // another caller's
		s.gets(f, payment{"A-1", sale.ID, 200}, 0, idempotent.ErrMismatch)
		time.Sleep(24 * time.Hour)
		s.gets(f, sale, 3, nil)
	})
}

func TestStoreIsAskedTwiceForARunAndOnceForAReplay(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Refuse, nil)
		s.gets(f, sale, 1, nil)
		run := s.store.asked.Swap(0)
		s.gets(f, sale, 1, nil)
		if replay := s.store.asked.Load(); run != 2 || replay != 1 {
			t.Errorf("asked %d and %d times", run, replay)
		}
	})
}

func TestConcurrentCallsRunOnce(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			inShop(t, func(s *shop) {
				f := s.pay(wait, idempotent.Rerun, func(context.Context) error { time.Sleep(time.Second); return nil })
				var answered, busy atomic.Int32
				var all sync.WaitGroup
				for range 200 {
					all.Go(func() {
						got, err := f.Call(s.Context(), sale)
						switch {
						case err == nil && got.Number == 1:
							answered.Add(1)
						case errors.Is(err, core.ErrBusy):
							busy.Add(1)
						default:
							t.Errorf("%+v, %v", got, err)
						}
					})
				}
				all.Wait()
				if s.ran.Load() != 1 || wait > 0 && answered.Load() != 200 || wait == 0 && busy.Load() != 199 {
					t.Errorf("ran %d, answered %d, busy %d", s.ran.Load(), answered.Load(), busy.Load())
				}
			})
		})
	}
}

func TestDuplicateLeavesTheLockToWhoeverHasBegun(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Rerun, nil)
		s.store.slow.Store(true)
		go s.gets(f, sale, 1, nil)
		synctest.Wait()
		s.store.slow.Store(false)
		s.store.asked.Store(0)
		s.gets(f, sale, 0, core.ErrBusy)
		if n := s.store.asked.Load(); n != 1 { // under the lock it would have asked again
			t.Errorf("it asked the store %d times", n)
		}
		time.Sleep(2 * time.Second)
		s.gets(f, sale, 1, nil)
	})
}

func TestRunOutlivesACallerWhoHangsUp(t *testing.T) {
	inShop(t, func(s *shop) {
		ctx, hangUp := context.WithCancel(s.Context())
		f := s.pay(0, idempotent.Refuse, func(ctx context.Context) error { hangUp(); time.Sleep(time.Second); return ctx.Err() })
		if got, err := f.Call(ctx, sale); err != nil || got.Number != 1 {
			t.Errorf("%+v, %v", got, err)
		}
		s.gets(f, sale, 1, nil)
	})
}

func TestCallerWhoHangsUpWhileHeWaitsLeavesNoTrace(t *testing.T) {
	inShop(t, func(s *shop) {
		held, err := s.locks.Acquire(s.Context(), core.Policy{Key: "pay:A-1:8e03978e"})
		if err != nil {
			t.Fatal(err)
		}
		f := s.pay(time.Hour, idempotent.Refuse, nil)
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		if _, err := f.Call(ctx, sale); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := held.Release(s.Context()); err != nil {
			t.Error(err)
		}
		s.gets(f, sale, 1, nil)
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	inShop(t, func(s *shop) {
		soldOut := errors.New("sold out")
		f := s.pay(0, idempotent.Refuse, func(context.Context) error {
			if s.ran.Load() == 1 {
				return soldOut
			}
			return nil
		})
		s.gets(f, sale, 0, soldOut)
		s.gets(f, sale, 2, nil)
	})
}

func TestDiedModeDecidesAfterAPanic(t *testing.T) {
	for _, try := range []struct {
		died   idempotent.DiedMode
		number int
		kind   error
	}{{idempotent.Rerun, 2, nil}, {idempotent.Refuse, 0, idempotent.ErrUnknown}} {
		t.Run(fmt.Sprint(try.died), func(t *testing.T) {
			inShop(t, func(s *shop) {
				f := s.pay(0, try.died, func(context.Context) error {
					if s.ran.Load() == 1 {
						panic("boom")
					}
					return nil
				})
				func() {
					defer func() {
						if recover() == nil {
							t.Error("the panic has not come through")
						}
					}()
					_, _ = f.Call(s.Context(), sale)
				}()
				time.Sleep(2 * time.Second)
				s.gets(f, sale, try.number, try.kind)
				if err := f.Forget(s.Context(), sale); err != nil {
					t.Error(err)
				}
				s.gets(f, sale, int(s.ran.Load())+1, nil)
			})
		})
	}
}

// A run that crashed is one whose record is begun while nobody holds its lock.
func TestDiedModeDecidesAfterACrash(t *testing.T) {
	for _, try := range []struct {
		died   idempotent.DiedMode
		number int
		kind   error
	}{{idempotent.Rerun, 1, nil}, {idempotent.Refuse, 0, idempotent.ErrUnknown}} {
		t.Run(fmt.Sprint(try.died), func(t *testing.T) {
			inShop(t, func(s *shop) {
				f := s.pay(5*time.Second, try.died, nil)
				crash(s, f)
				s.gets(f, sale, try.number, try.kind)
			})
		})
	}
}

// crash leaves the record of sale begun, as a process does that dies before it has the lock.
func crash(s *shop, f *idempotent.Func[payment, receipt]) {
	s.store.late.Store(true) // begun, without a reply
	s.gets(f, sale, 0, idempotent.ErrUnavailable)
	s.store.down.Store(true) // it is not given up
	time.Sleep(20 * time.Second)
	s.store.down.Store(false)
	s.store.late.Store(false)
}

func TestLostReplyIsGivenUpInTheBackground(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Refuse, nil)
		s.store.late.Store(true)
		s.gets(f, sale, 0, idempotent.ErrUnavailable)
		s.store.late.Store(false)
		time.Sleep(10 * time.Second)
		s.gets(f, sale, 1, nil)
	})
}

func TestNothingRunsWhileTheStoreIsDown(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Rerun, nil)
		s.store.down.Store(true)
		s.gets(f, sale, 0, idempotent.ErrUnavailable)
		if s.ran.Load() != 0 {
			t.Error("it has run")
		}
	})
}

func TestAnswerThatCannotBeStoredIsGivenAllTheSame(t *testing.T) {
	inShop(t, func(s *shop) {
		f := s.pay(0, idempotent.Refuse, func(context.Context) error { s.store.down.Store(true); return nil })
		s.gets(f, sale, 1, nil)
		s.store.down.Store(false)
		s.gets(f, sale, 0, idempotent.ErrUnknown)
	})
}

func TestRunThatLostItsLockSaysSoUnlessItsAnswerIsStored(t *testing.T) {
	for _, overtaken := range []bool{false, true} {
		t.Run(fmt.Sprint("overtaken ", overtaken), func(t *testing.T) {
			inShop(t, func(s *shop) {
				var f *idempotent.Func[payment, receipt]
				f = s.pay(time.Minute, idempotent.Rerun, func(ctx context.Context) error {
					if s.ran.Load() > 1 {
						return nil
					}
					time.Sleep(3 * time.Second)
					if _, err := s.locks.ForceRelease(s.Context(), "pay:A-1:8e03978e"); err != nil {
						t.Error(err)
					}
					<-ctx.Done()
					if overtaken {
						s.gets(f, sale, 2, nil)
					}
					return nil
				})
				got, err := f.Call(s.Context(), sale)
				if overtaken != errors.Is(err, core.ErrLost) || !overtaken && (err != nil || got.Number != 1) {
					t.Errorf("%+v, %v", got, err)
				}
				s.gets(f, sale, 1+map[bool]int{true: 1}[overtaken], nil)
			})
		})
	}
}

func TestRunThatFailsByTheLossOfItsLockHasDied(t *testing.T) {
	for died, kind := range map[idempotent.DiedMode]error{idempotent.Rerun: nil, idempotent.Refuse: idempotent.ErrUnknown} {
		inShop(t, func(s *shop) {
			f := s.pay(time.Minute, died, func(ctx context.Context) error {
				if s.ran.Load() > 1 {
					return nil
				}
				if _, err := s.locks.ForceRelease(s.Context(), "pay:A-1:8e03978e"); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				return ctx.Err()
			})
			s.gets(f, sale, 0, core.ErrLost)
			time.Sleep(3 * time.Second)
			s.gets(f, sale, map[bool]int{true: 2}[kind == nil], kind)
		})
	}
}

func TestRunThatWasOvertakenUnnoticedIsTold(t *testing.T) {
	inShop(t, func(s *shop) {
		var f *idempotent.Func[payment, receipt]
		f = s.pay(time.Minute, idempotent.Rerun, func(context.Context) error {
			if s.ran.Load() == 1 {
				time.Sleep(3 * time.Second)
				s.keys.Expire("shop/pay:A-1:8e03978e") // the store loses it
				s.gets(f, sale, 2, nil)
			}
			return nil
		})
		s.gets(f, sale, 1, core.ErrLost)
		s.gets(f, sale, 2, nil)
	})
}

func TestRecordOutlastsItsRunHoweverShortlyAnswersAreKept(t *testing.T) {
	inShop(t, func(s *shop) {
		f := idempotent.Must(s.locks, core.Policy{Key: "pay:{Account}:{ID}", Wait: time.Minute}, s.store, func(context.Context, payment) (receipt, error) {
			time.Sleep(12 * time.Second)
			return receipt{int(s.ran.Add(1))}, nil
		}, idempotent.Policy{Died: idempotent.Refuse, Keep: 10 * time.Second})
		go s.gets(f, sale, 1, nil)
		time.Sleep(11 * time.Second)
		s.gets(f, sale, 1, nil)
		time.Sleep(9 * time.Second)
		s.gets(f, sale, 1, nil)
		time.Sleep(2 * time.Second)
		s.gets(f, sale, 2, nil)
	})
}

// others is a store in which somebody else has always just begun.
type others struct{ idempotent.Store }

func (others) Begin(_ context.Context, _ string, c idempotent.Claim) (idempotent.Record, error) {
	return idempotent.Record{State: idempotent.Begun, Run: idempotent.Run{1}, Fingerprint: c.Fingerprint, Alone: time.Second}, nil
}

func TestWaitIsBounded(t *testing.T) {
	inShop(t, func(s *shop) {
		s.store.Store = others{s.store.Store}
		from := time.Now()
		s.gets(s.pay(5*time.Second, idempotent.Rerun, nil), sale, 0, core.ErrTimeout)
		if took := time.Since(from); took != 7*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestKeyThatChangesWithinACallRunsNothing(t *testing.T) {
	inShop(t, func(s *shop) {
		n := 0
		g, err := idempotent.NewGuard(s.locks, core.Policy{Key: "pay:{n}"}, s.store, idempotent.Policy{Died: idempotent.Rerun}, func(string) (core.Accessor[payment], error) {
			return func(dst []byte, _ payment) ([]byte, error) {
				n++
				return strconv.AppendInt(dst, int64(n), 10), nil
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Do(s.Context(), sale, [32]byte{}, func(context.Context) idempotent.Ending {
			t.Error("it runs")
			return idempotent.Ending{}
		})
		if !errors.Is(err, core.ErrKey) {
			t.Error(err)
		}
	})
}

func TestLargeAnswersAreDoneAndNotReplayed(t *testing.T) {
	inShop(t, func(s *shop) {
		f := idempotent.Must(s.locks, core.Policy{Key: "{.}"}, s.store, func(_ context.Context, n int) (string, error) {
			s.ran.Add(1)
			return strings.Repeat("x", n), nil
		}, idempotent.Policy{Died: idempotent.Rerun, MaxBytes: 100})
		for range 2 {
			if got, err := f.Call(s.Context(), 98); err != nil || len(got) != 98 {
				t.Error(len(got), err)
			}
		}
		_, first := f.Call(s.Context(), 99)
		_, second := f.Call(s.Context(), 99)
		if first != nil || !errors.Is(second, idempotent.ErrNoReplay) || s.ran.Load() != 2 {
			t.Error(first, second, s.ran.Load())
		}
	})
}

func TestAnswersAreSealed(t *testing.T) {
	inShop(t, func(s *shop) {
		flip := func(key string, b []byte) ([]byte, error) {
			out := append([]byte{}, b...)
			for i := range out {
				out[i] ^= key[0]
			}
			return out, nil
		}
		broken := func(string, []byte) ([]byte, error) { panic("no key") }
		fn := func(_ context.Context, in payment) (receipt, error) { return receipt{int(s.ran.Add(1))}, nil }
		sealed := func(seal, open func(string, []byte) ([]byte, error)) *idempotent.Func[payment, receipt] {
			return idempotent.Must(s.locks, core.Policy{Key: "pay:{Account}:{ID}"}, s.store, fn, idempotent.Policy{Died: idempotent.Rerun, Seal: seal, Open: open})
		}
		f := sealed(flip, flip)
		s.gets(f, sale, 1, nil)
		s.gets(f, sale, 1, nil)
		s.gets(sealed(flip, broken), sale, 0, idempotent.ErrNoReplay)
		s.gets(s.pay(0, idempotent.Rerun, nil), sale, 0, idempotent.ErrNoReplay)
		other := payment{"A-1", "other", 1}
		s.gets(sealed(broken, flip), other, 2, nil)
		s.gets(f, other, 0, idempotent.ErrNoReplay)
	})
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	inShop(t, func(s *shop) {
		key := core.Policy{Key: "pay:{Account}:{ID}"}
		fn := func(context.Context, payment) (receipt, error) { return receipt{}, nil }
		rerun := idempotent.Policy{Died: idempotent.Rerun}
		seal := func(_ string, b []byte) ([]byte, error) { return b, nil }
		for name, try := range map[string]struct {
			lock  core.Policy
			store idempotent.Store
			fn    func(context.Context, payment) (receipt, error)
			once  idempotent.Policy
			says  string
		}{
			"no mode":       {key, s.store, fn, idempotent.Policy{}, "Died is not set"},
			"no database":   {key, s.store, fn, idempotent.Policy{Died: idempotent.Tx}, "sqlrecords.New"},
			"unknown mode":  {key, s.store, fn, idempotent.Policy{Died: 9}, "Died is 9"},
			"short keep":    {key, s.store, fn, idempotent.Policy{Died: idempotent.Rerun, Keep: 24}, "Keep is 24ns"},
			"negative size": {key, s.store, fn, idempotent.Policy{Died: idempotent.Rerun, MaxBytes: -1}, "MaxBytes is -1"},
			"half a seal":   {key, s.store, fn, idempotent.Policy{Died: idempotent.Rerun, Seal: seal}, "set both"},
			"no store":      {key, nil, fn, rerun, "the store is nil"},
			"no function":   {key, s.store, nil, rerun, "the function is nil"},
			"several keys":  {core.Policy{Keys: []string{"a:{ID}", "b:{ID}"}}, s.store, fn, rerun, "several Keys"},
			"shared":        {core.Policy{Key: "{ID}", Mode: core.Shared}, s.store, fn, rerun, "exclusive"},
			"reentrant":     {core.Policy{Key: "{ID}", Reentrant: true}, s.store, fn, rerun, "Reentrant"},
			"minimal hold":  {core.Policy{Key: "{ID}", MinHold: time.Second}, s.store, fn, rerun, "MinHold"},
			"unknown field": {core.Policy{Key: "{Id}"}, s.store, fn, rerun, "Id"},
		} {
			if _, err := idempotent.New(s.locks, try.lock, try.store, try.fn, try.once); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), try.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestErrorsHaveReasonsAndTellNothing(t *testing.T) {
	for kind, status := range map[error]int{idempotent.ErrMismatch: 422, idempotent.ErrUnknown: 422, idempotent.ErrNoReplay: 422, idempotent.ErrUnavailable: 503} {
		err := fmt.Errorf("pay: %w", &idempotent.Error{Policy: "pay", Kind: kind, Cause: errDown})
		r, ok := reason.Of(err)
		if !ok || r.HTTP != status || r.Text == "" || strings.Contains(reason.Told(err), errDown.Error()) || !errors.Is(err, errDown) {
			t.Errorf("%v: %+v, %v", err, r, ok)
		}
	}
}
