package kit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const ttl = 10 * time.Second

// session is a session whose owners are those of a store.
type session struct {
	*Life
	debts *Debts[string]
	store *store
}

func newSession(st *store, atOnce int) *session {
	l := NewLife("test", "the server")
	return &session{l, NewDebts[string](l, atOnce), st}
}

// giveUp has an owner ended that the store forgets after ttl.
func (s *session) giveUp(owner string) { s.giveUpAfter(owner, nil) }

func (s *session) giveUpAfter(owner string, after <-chan struct{}) {
	s.debts.Owe(owner, Debt{
		Limit: ttl + 2*timeout, After: after,
		End: func(ctx context.Context) error { return s.store.end(ctx, owner) },
		Over: func() {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			s.store.over[owner] = append(s.store.over[owner], time.Now())
		},
	})
}

func (s *session) close(ctx context.Context) error { return s.Close(ctx, s.debts.Drain, nil) }

// must closes the session, which has nothing left to do.
func (s *session) must(t *testing.T) {
	t.Helper()
	if err := s.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAGivenUpOwnerIsEndedWhateverTheStoreDoes(t *testing.T) {
	for _, tt := range []struct {
		name string
		plan []fault
		want []time.Duration // of the requests
	}{
		{"it answers", nil, []time.Duration{0}},
		{"it loses replies", []fault{loses, loses}, []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond}},
		{"it fails", []fault{fails, fails}, []time.Duration{0, 10 * time.Millisecond, 30 * time.Millisecond}},
		{"it hangs", []fault{hangs}, []time.Duration{0, timeout + 10*time.Millisecond}},
		{"pauses grow up to 250 ms", []fault{fails, fails, fails, fails, fails, fails, fails, fails}, []time.Duration{
			0, 10 * time.Millisecond, 30 * time.Millisecond, 70 * time.Millisecond, 150 * time.Millisecond,
			310 * time.Millisecond, 560 * time.Millisecond, 810 * time.Millisecond, 1060 * time.Millisecond,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStore(tt.plan...)
				s := newSession(st, 1)
				begin := time.Now()
				st.create("a", ttl)
				s.giveUp("a")
				var drains sync.WaitGroup
				for range 2 {
					drains.Go(func() {
						if !s.debts.Drain(t.Context()) {
							t.Error("the debt is left")
						}
					})
				}
				drains.Wait()
				if st.has("a") {
					t.Error("the owner is left at the store")
				}
				if over := st.over["a"]; len(over) != 1 || over[0] != time.Now() {
					t.Errorf("the debt is over at %v, want %v", over, time.Now())
				}
				if got := st.times("a", begin); !slices.Equal(got, tt.want) {
					t.Errorf("asked after %v, want %v", got, tt.want)
				}
				s.must(t)
			})
		})
	}
}

func TestAnOwnerIsNotAskedForAgainAfterARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(fails, refuses)
		s := newSession(st, 1)
		begin := time.Now()
		s.giveUp("a")
		s.must(t)
		if got, want := st.times("a", begin), []time.Duration{0, 10 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("asked after %v, want %v", got, want)
		}
	})
}

func TestNothingIsTriedLongerThanTheStoreRemembersAnOwner(t *testing.T) {
	for name, f := range map[string]fault{"it fails": fails, "it hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newStore()
				st.then = f
				s := newSession(st, 1)
				begin := time.Now()
				s.giveUp("a")
				if !s.debts.Drain(t.Context()) {
					t.Error("the debt is left")
				}
				if took, want := time.Since(begin), ttl+2*timeout; took != want {
					t.Errorf("tried for %v, want %v", took, want)
				}
				if over := st.over["a"]; len(over) != 1 || over[0] != time.Now() {
					t.Errorf("the debt is over at %v, want %v", over, time.Now())
				}
				if n := len(st.times("a", begin)); n > 60 {
					t.Errorf("asked %d times", n)
				}
				s.must(t)
			})
		})
	}
}

func TestADebtIsPaidOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(fails)
		s := newSession(st, 4)
		begin := time.Now()
		for range 3 {
			s.giveUp("a")
		}
		if !s.debts.Drain(t.Context()) {
			t.Error("the debt is left")
		}
		s.giveUp("a") // once more, later
		s.must(t)
		if got, want := st.times("a", begin), []time.Duration{0, 10 * time.Millisecond, 10 * time.Millisecond}; !slices.Equal(got, want) {
			t.Errorf("asked after %v, want %v", got, want)
		}
	})
}

func TestDebtsArePaidInOrderAndAFewAtATime(t *testing.T) {
	for _, atOnce := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			st := newStore()
			st.takes = 10 * time.Millisecond
			s := newSession(st, atOnce)
			var want []string
			for i := range 40 {
				owner := fmt.Sprint(i)
				want = append(want, owner)
				s.giveUp(owner)
				synctest.Wait()
			}
			begin := time.Now()
			if !s.debts.Drain(t.Context()) {
				t.Error("debts are left")
			}
			if took, want := time.Since(begin), 400*time.Millisecond/time.Duration(atOnce); took != want {
				t.Errorf("%d at a time: took %v, want %v", atOnce, took, want)
			}
			if st.most != atOnce {
				t.Errorf("%d requests at a time, want %d", st.most, atOnce)
			}
			if atOnce == 1 {
				var got []string
				for _, a := range st.asked {
					got = append(got, a.owner)
				}
				if !slices.Equal(got, want) {
					t.Errorf("paid in the order %v", got)
				}
			}
			s.must(t)
		})
	}
}

func TestAnOwnerThatIsHardToEndDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(fails, fails, fails) // the first owner's
		s := newSession(st, 1)
		begin := time.Now()
		s.giveUp("a")
		synctest.Wait()
		time.Sleep(50 * time.Millisecond) // its third request has failed
		st.create("b", ttl)
		s.giveUp("b")
		synctest.Wait()
		if got := st.times("b", begin); !slices.Equal(got, []time.Duration{50 * time.Millisecond}) || st.has("b") {
			t.Errorf("the second owner was asked for after %v", got)
		}
		s.must(t)
	})
}

func TestAnOwnerIsEndedAfterTheRequestThatCreatesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		s := newSession(st, 1)
		begin, arrived := time.Now(), make(chan struct{})
		s.giveUpAfter("a", arrived)
		time.Sleep(2 * ttl) // the request hangs for longer than what it makes lasts
		st.create("a", ttl)
		close(arrived)
		s.must(t)
		if got := st.times("a", begin); !slices.Equal(got, []time.Duration{2 * ttl}) || st.has("a") {
			t.Errorf("asked after %v; the owner is left: %t", got, st.has("a"))
		}
	})
}

func TestCloseFinishesTheCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore(fails, loses, hangs)
		s := newSession(st, 2)
		for i := range 10 {
			st.create(fmt.Sprint(i), ttl)
			s.giveUp(fmt.Sprint(i))
		}
		s.must(t)
		for i := range 10 {
			if st.has(fmt.Sprint(i)) {
				t.Errorf("owner %d is left after Close", i)
			}
		}
	})
}

func TestCloseGivesUpTheCleanUpWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.then = fails
		s := newSession(st, 2)
		s.giveUp("a")
		s.giveUpAfter("b", make(chan struct{}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with %v", err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("closing took %v", took)
		}
		synctest.Wait()
		n := len(st.asked)
		time.Sleep(ttl)
		if len(st.asked) != n {
			t.Error("the store is asked after the session's end")
		}
	})
}

func TestEachOfTwoWhoCloseIsToldOfWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.then = fails
		s := newSession(st, 2)
		s.giveUp("a")
		var both sync.WaitGroup
		for _, patience := range []time.Duration{time.Second, time.Minute} {
			both.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begin := time.Now()
				if err := s.close(ctx); err == nil {
					t.Errorf("closing within %v says that nothing is left", patience)
				}
				if took := time.Since(begin); took != time.Second {
					t.Errorf("closing within %v took %v", patience, took)
				}
			})
		}
		both.Wait()
		s.must(t) // it was told
	})
}

func TestWhatIsOwedAfterTheEndIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		s := newSession(st, 1)
		s.must(t)
		s.giveUp("a")
		if len(st.asked) > 0 {
			t.Error("the store is asked after the session's end")
		}
		s.must(t)
	})
}

// TestNoGhostOutlivesItsTTL gives owners up at random, at a store that fails at random, and
// expects of each that it is ended, or forgotten by the store and no longer tried.
func TestNoGhostOutlivesItsTTL(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			st := newStore()
			for range 200 {
				st.plan = append(st.plan, []fault{works, works, loses, fails, fails, hangs}[r.IntN(6)])
			}
			s := newSession(st, 1+r.IntN(4))
			begin := time.Now()
			given := make(map[string]time.Time)
			for i := range 30 {
				owner := fmt.Sprint(i)
				st.create(owner, ttl)
				given[owner] = time.Now()
				s.giveUp(owner)
				time.Sleep(time.Duration(r.IntN(200)) * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(30))*time.Second)
			defer cancel()
			err := s.close(ctx)
			for owner, at := range given {
				asked := st.times(owner, begin)
				if err == nil && (st.has(owner) || len(asked) == 0) {
					t.Errorf("seed %d: Close returned nil, and owner %s is left: %t, asked after %v", seed, owner, st.has(owner), asked)
				}
				if late := at.Add(ttl + 2*timeout).Sub(begin); len(asked) > 0 && asked[len(asked)-1] > late {
					t.Errorf("seed %d: owner %s is asked for after %v, and the store has forgotten it after %v", seed, owner, asked, late)
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("seed %d: closed with %v before the time was over", seed, err)
			}
			synctest.Wait()
		})
	}
}
