package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if said := strings.Fields(os.Getenv("MIGRATE_PLAIN")); len(said) == 3 {
		plainProcess(said[0], said[1], said[2])
	}
	goleak.VerifyTestMain(m)
}

// A stage of the roll-out has replicas of one step, or of two that follow each other. They
// exclude each other whichever has the lock. Those that skip a step do not, which shows that
// this test would find it.
func TestStepsThatFollowEachOtherExcludeEachOther(t *testing.T) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := servers[name](t).Addr()
			holder, other := opened(t, open, at), opened(t, open, at)
			for a := oldLock; a <= newLock; a++ {
				for b := oldLock; b <= newLock; b++ {
					t.Run(fmt.Sprintf("%d has it and %d asks", a, b), func(t *testing.T) {
						article := sale{SKU: fmt.Sprintf("%d-%d", a, b)}
						follow, patience := a-b <= 1 && b-a <= 1, 300*time.Millisecond
						if !follow {
							patience = time.Minute
						}
						leave := hold(t, holder, a, article)
						got := comesIn(t, other, b, article, patience)
						leave()
						if got == follow {
							t.Errorf("the other one came in meanwhile: %v, want %v", got, !follow)
						}
						if err := other.at(b, nothing)(t.Context(), article); err != nil {
							t.Errorf("when it was free: %v", err)
						}
					})
				}
			}
		})
	}
}

// Both locks are given back when one of them cannot be had.
func TestCallThatGetsOneOfBothLocksKeepsNone(t *testing.T) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := servers[name](t).Addr()
			holder, other := opened(t, open, at), opened(t, open, at)
			for _, has := range []step{oldLock, newLock} {
				article := sale{SKU: fmt.Sprint(has)}
				leave := hold(t, holder, has, article)
				if comesIn(t, other, bothLocks, article, 300*time.Millisecond) {
					t.Fatalf("a call with both locks came in beside step %d", has)
				}
				leave()
				for _, s := range []step{oldLock, newLock} {
					if err := other.at(s, nothing)(t.Context(), article); err != nil {
						t.Errorf("after step %d had it, step %d: %v", has, s, err)
					}
				}
			}
		})
	}
}

// Calls that take two keys in one order do not wait for each other in a circle, whichever
// steps are mixed: one that did would run out of its Wait.
func TestCallsOfTwoKeysDoNotWaitForEachOtherInACircle(t *testing.T) {
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := servers[name](t).Addr()
			replicas := []*replica{opened(t, open, at), opened(t, open, at)}
			for _, steps := range [][]step{{oldLock, bothLocks}, {bothLocks, bothLocks}, {bothLocks, newLock}} {
				var callers sync.WaitGroup
				for i, r := range replicas {
					second := r.at(steps[i], nothing)
					first := r.at(steps[i], func(ctx context.Context, _ sale) error { return second(ctx, sale{SKU: "B"}) })
					callers.Go(func() {
						for n := range 10 {
							call, article := first, sale{SKU: "A"}
							if n%2 == 1 {
								call, article = second, sale{SKU: "B"}
							}
							if err := call(t.Context(), article); err != nil {
								t.Errorf("steps %v, step %d, article %s: %v", steps, steps[i], article.SKU, err)
							}
						}
					})
				}
				callers.Wait()
			}
		})
	}
}

// A method's own error comes back unchanged, whichever locks are around it.
func TestErrorsOfTheMethodPassBothLocks(t *testing.T) {
	soldOut := errors.New("sold out")
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := opened(t, open, servers[name](t).Addr())
			for s := oldLock; s <= newLock; s++ {
				err := r.at(s, func(context.Context, sale) error { return soldOut })(t.Context(), sale{SKU: "A-1"})
				if !errors.Is(err, soldOut) {
					t.Errorf("step %d: %v, want %v", s, err, soldOut)
				}
			}
		})
	}
}

func TestNoSalesOverlapInTheStagesOfTheRollOut(t *testing.T) {
	for name := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			if status := run(t.Context(), []string{"-from", name, "-at", servers[name](t).Addr(), "-time", "200ms"}, &out, &errs); status != 0 {
				t.Errorf("exit status %d: %s\n%s", status, &errs, &out)
			}
			if rows := strings.Count(out.String(), "\n"); rows != 1+len(stages) {
				t.Errorf("%d lines, want %d:\n%s", rows, 1+len(stages), &out)
			}
		})
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"x"}, 2, `"x" is no flag`},
		{[]string{"-from", "zk"}, 2, `-from is "zk"; use redislock, redsync or etcd`},
		{[]string{"-form", "etcd"}, 2, "not defined"},
		{[]string{"-help"}, 0, "host:port"},
		{[]string{"-at", "127.0.0.1:1"}, 1, "lock store unavailable"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), tc.args, &out, &errs); status != tc.status || !strings.Contains(errs.String(), tc.says) {
			t.Errorf("%q: exit status %d, said %q; want %d and %q", tc.args, status, errs.String(), tc.status, tc.says)
		}
	}
}

func nothing(context.Context, sale) error { return nil }

func opened(t *testing.T, open func(string) (*replica, error), at string) *replica {
	t.Helper()
	r, err := open(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// hold returns when a call of that step is in the method, which it leaves by the function
// that is returned.
func hold(t *testing.T, r *replica, s step, article sale) (leave func()) {
	t.Helper()
	in, out, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.at(s, func(context.Context, sale) error {
			close(in)
			<-out
			return nil
		})(t.Context(), article)
	}()
	select {
	case <-in:
	case err := <-done:
		t.Fatalf("the holder did not come in: %v", err)
	}
	return func() {
		close(out)
		if err := <-done; err != nil {
			t.Errorf("the holder: %v", err)
		}
	}
}

// comesIn reports whether a call of that step comes into the method in that time.
func comesIn(t *testing.T, r *replica, s step, article sale, patience time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in := false
	_ = r.at(s, func(context.Context, sale) error {
		in = true
		return nil
	})(ctx, article) // says that the time is over, and what did it
	return in
}
