package rediscache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

// shelf is where one key is read: a reading takes a second and finds what was there in its
// middle.
type shelf struct {
	value atomic.Int64
	reads atomic.Int64
	err   error
}

func (s *shelf) read(ctx context.Context, _ string) (cache.Entry, error) {
	s.reads.Add(1)
	for range 2 {
		select {
		case <-time.After(time.Second / 2):
		case <-ctx.Done():
			return cache.Entry{}, ctx.Err()
		}
	}
	if s.err != nil {
		return cache.Entry{}, s.err
	}
	return cache.Entry{Value: []byte{byte(s.value.Load())}, Left: time.Minute}, nil
}

func newReadings() *readings { return &readings{byKey: make(map[string]*reading)} }

func TestWhoComesDuringAReadingSharesTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &shelf{}, newReadings()
		var calls sync.WaitGroup
		get := func(want byte, left time.Duration) {
			calls.Go(func() {
				e, err := r.get(t.Context(), "k", s.read)
				if err != nil || len(e.Value) != 1 || e.Value[0] != want || e.Left != left {
					t.Errorf("%v, %v; want %d", e, err, want)
				}
				if e.Value != nil {
					e.Value[0] = 99 // it is the caller's own
				}
			})
			synctest.Wait()
		}
		s.value.Store(1)
		get(1, time.Minute)
		for range 100 {
			get(2, time.Minute)
		}
		time.Sleep(1100 * time.Millisecond)
		s.value.Store(2) // during the second reading
		get(3, time.Minute)
		time.Sleep(time.Second)
		s.value.Store(3)
		calls.Wait()
		if n := s.reads.Load(); n != 3 {
			t.Errorf("%d readings, want 3", n)
		}
		synctest.Wait()
		if len(r.byKey) != 0 {
			t.Errorf("%d keys are left", len(r.byKey))
		}
	})
}

func TestReadingsOfOtherKeysDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &shelf{}, newReadings()
		began := time.Now()
		var calls sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			calls.Go(func() {
				if _, err := r.get(t.Context(), key, s.read); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("three keys took %v", took)
		}
	})
}

func TestASharedReadingEndsWithNoOnesContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &shelf{}, newReadings()
		var calls sync.WaitGroup
		for i := range 3 { // the first reads alone, the second gives up the next reading
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*400*time.Millisecond)
				defer cancel()
				if _, err := r.get(ctx, "k", s.read); i < 2 && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("caller %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		calls.Go(func() {
			if _, err := r.get(t.Context(), "k", s.read); err != nil {
				t.Error(err)
			}
		})
		calls.Wait()
		if n := s.reads.Load(); n != 2 {
			t.Errorf("%d readings, want 2", n)
		}
	})
}

func TestAnErrorIsThatOfItsReadingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := &shelf{err: errors.New("broken")}, newReadings()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				if _, err := r.get(t.Context(), "k", s.read); !errors.Is(err, s.err) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		s.err = nil
		if _, err := r.get(t.Context(), "k", s.read); err != nil {
			t.Error(err)
		}
	})
}

func TestASharedValueThatEndsBeforeItIsTakenIsNone(t *testing.T) {
	r := newReadings()
	shared := &reading{done: make(chan struct{}), entry: cache.Entry{Value: []byte("v"), Left: time.Minute}, at: time.Now().Add(-time.Hour)}
	close(shared.done)
	r.byKey["k"] = &reading{next: shared}
	if e, err := r.get(t.Context(), "k", nil); err != nil || e.Value != nil || e.Left != 0 {
		t.Errorf("%v, %v; want none", e, err)
	}
}
