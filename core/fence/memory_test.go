package fence_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/fence"
)

func token(key string, n int64) fence.Token { return fence.Token{Key: key, Number: n} }

func TestMemoryAdmitsNoTokenBelowTheLargest(t *testing.T) {
	var m fence.Memory
	for _, step := range []struct {
		token fence.Token
		want  error
	}{
		{token("a", 1<<53+1), nil},
		{token("a", 1<<53+1), nil},
		{token("a", 1<<53), fence.ErrStale},
		{token("a", 1<<53+2), nil},
		{token("a", 1<<53+1), fence.ErrStale},
		{token("b", 1), nil},
		{token("a", math.MaxInt64), nil},
		{token("a", math.MaxInt64-1), fence.ErrStale},
		{token("", 1), fence.ErrMalformed},
		{token("a", 0), fence.ErrMissing},
		{fence.Token{}, fence.ErrMissing},
	} {
		mustBe(t, m.Admit(t.Context(), step.token), step.want)
	}
}

func TestStaleTokenNeverRunsItsWrite(t *testing.T) {
	var m fence.Memory
	failed := errors.New("disk full")
	ran := 0
	write := func(err error) func() error { return func() error { ran++; return err } }
	mustBe(t, m.Do(t.Context(), token("k", 33), write(failed)), failed)
	mustBe(t, m.Do(t.Context(), token("k", 33), write(nil)), nil) // repeated
	mustBe(t, m.Do(t.Context(), token("k", 34), write(nil)), nil)
	mustBe(t, m.Do(t.Context(), token("k", 33), write(nil)), fence.ErrStale)
	if ran != 3 {
		t.Errorf("%d writes ran; want 3", ran)
	}
}

func TestNoLargerTokenIsAdmittedWhileASmallerOneWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m fence.Memory
		var writes sync.WaitGroup
		writing := true
		writes.Go(func() {
			mustBe(t, m.Do(t.Context(), token("k", 33), func() error {
				time.Sleep(time.Minute)
				writing = false
				return nil
			}), nil)
		})
		synctest.Wait()
		mustBe(t, m.Admit(t.Context(), token("other", 1)), nil) // does not wait
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no patience"))
		defer cancel()
		if err := m.Admit(ctx, token("k", 34)); err == nil || !errors.Is(err, context.Cause(ctx)) {
			t.Errorf("got %v; want the cause of the context's end", err)
		}
		mustBe(t, m.Admit(t.Context(), token("k", 34)), nil)
		if writing {
			t.Error("a larger token was admitted beside the write of a smaller one")
		}
		writes.Wait()
		mustBe(t, m.Do(t.Context(), token("k", 33), func() error { t.Error("a stale write ran"); return nil }), fence.ErrStale)
	})
}

func TestWritesOfOneKeyRunInTheOrderOfTheirTokens(t *testing.T) {
	var m fence.Memory
	var written []int64 // a race unless writes exclude each other
	var all sync.WaitGroup
	for n := range int64(100) {
		all.Go(func() {
			err := m.Do(t.Context(), token("k", n+1), func() error { written = append(written, n); return nil })
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range written {
		if i > 0 && written[i] <= written[i-1] {
			t.Fatalf("wrote %v", written)
		}
	}
	if len(written) == 0 || written[len(written)-1] != 99 {
		t.Errorf("the largest is not the last: %v", written)
	}
}

func TestPanickingWriteLeavesTheGuardUsable(t *testing.T) {
	var m fence.Memory
	func() {
		defer func() { _ = recover() }()
		_ = m.Do(t.Context(), token("k", 2), func() error { panic("boom") })
	}()
	mustBe(t, m.Admit(t.Context(), token("k", 1)), fence.ErrStale)
	mustBe(t, m.Admit(t.Context(), token("k", 2)), nil)
}

func TestEndedContextRunsNothing(t *testing.T) {
	var m fence.Memory
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	mustBe(t, m.Do(ctx, token("k", 2), func() error { t.Error("the write ran"); return nil }), context.Canceled)
	mustBe(t, m.Admit(t.Context(), token("k", 1)), nil)
}

func TestForgottenKeyBeginsAnew(t *testing.T) {
	var m fence.Memory
	if !m.Forget("k") {
		t.Error("a key that is not known cannot be forgotten")
	}
	mustBe(t, m.Admit(t.Context(), token("k", 9)), nil)
	mustBe(t, m.Do(t.Context(), token("k", 9), func() error {
		if m.Forget("k") {
			t.Error("forgotten under a write")
		}
		return nil
	}), nil)
	if !m.Forget("k") {
		t.Error("not forgotten")
	}
	mustBe(t, m.Admit(t.Context(), token("k", 1)), nil)
}

func TestForgettingLetsNoTwoWritesRunAtOnce(t *testing.T) {
	var m fence.Memory
	count := 0 // a race unless writes exclude each other
	var all sync.WaitGroup
	const each = 200
	for range 4 {
		all.Go(func() {
			for range each {
				mustBe(t, m.Do(t.Context(), token("k", 1), func() error { count++; return nil }), nil)
			}
		})
		all.Go(func() {
			for range each {
				m.Forget("k")
			}
		})
	}
	all.Wait()
	if count != 4*each {
		t.Errorf("%d writes; want %d", count, 4*each)
	}
}
