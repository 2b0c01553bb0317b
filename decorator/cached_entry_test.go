package decorator_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
)

func TestAValueThatCannotBeCachedIsAnErrorForAll(t *testing.T) {
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"not to be encoded": {math.NaN(), "cannot be encoded"},
		"too large":         {strings.Repeat("x", 99), "it has 101 bytes and CachePolicy.MaxBytes is 100"},
	} {
		f := decorator.Cached(newEngine(t, memlock.New()), core.Policy{Name: "report", Key: "report:{.}"}, cache.NewMemory(cache.Limits{Entries: 9}),
			func(context.Context, string) (any, error) { return tc.value, nil }, decorator.CachePolicy{Expiry: time.Minute, MaxBytes: 100})
		v, err := f.Get(t.Context(), "a")
		if !errors.Is(err, decorator.ErrValue) || v != nil || !strings.Contains(err.Error(), `"report"`) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		f.Close()
	}
}

func TestAValueThatCannotBeReadAnyMoreIsLoadedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, old := range map[string]string{
			"another form":   `{"ID":"a"}`,
			"no length":      "\xc1v",
			"another type":   "\xc1v\x00[1]",
			"cut off":        "\xc1v\x00{\"ID\":",
			"unknown kind":   "\xc1x\x00{}",
			"endless number": "\xc1v\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff{}",
			"stale for ever": "\xc1v\xff\xff\xff\xff\xff\xff\xff\xff\x7f{}",
			"empty":          "",
		} {
			l := newLibrary(t)
			if _, err := l.store.Claim(t.Context(), "page:a", 1, time.Minute); err != nil {
				t.Fatal(err)
			}
			if stored, err := l.store.Put(t.Context(), "page:a", 1, []byte(old), time.Hour); !stored || err != nil {
				t.Fatal(stored, err)
			}
			f := l.process(kept)
			gets(t, f, 1)
			gets(t, f, 1)
			if l.loads.Load() != 1 {
				t.Errorf("%s: %d loads", name, l.loads.Load())
			}
		}
	})
}

func TestEveryCallerHasAValueOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := decorator.Cached(newEngine(t, memlock.New()), core.Policy{Key: "tags:{.}", Wait: time.Minute}, cache.NewMemory(cache.Limits{Entries: 9}),
			func(context.Context, string) ([]string, error) { return []string{"new"}, nil }, decorator.CachePolicy{Expiry: time.Minute})
		t.Cleanup(f.Close)
		for range 3 {
			v, err := f.Get(t.Context(), "a")
			if err != nil || v[0] != "new" {
				t.Fatal(v, err)
			}
			v[0] = "changed"
		}
	})
}

func TestANilValueIsAValue(t *testing.T) {
	f := decorator.Cached(newEngine(t, memlock.New()), core.Policy{Key: "page:{.}"}, cache.NewMemory(cache.Limits{Entries: 9}),
		func(context.Context, string) (*page, error) { return nil, nil }, decorator.CachePolicy{Expiry: time.Minute})
	t.Cleanup(f.Close)
	for range 2 {
		if v, err := f.Get(t.Context(), "a"); v != nil || err != nil {
			t.Error(v, err)
		}
	}
}

func FuzzWhatTheCacheHasIsReadOrLoadedAnew(f *testing.F) {
	f.Add([]byte("\xc1v\x00{\"ID\":\"a\",\"Load\":7}"))
	f.Add([]byte("\xc1n\x00"))
	f.Add([]byte("\xc1v\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	locks, err := core.New(memlock.New(), core.WithNamespace("fuzz"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = locks.Close() })
	f.Fuzz(func(t *testing.T, entry []byte) {
		store := cache.NewMemory(cache.Limits{Entries: 1})
		pages := decorator.Cached(locks, core.Policy{Key: "page:{.}", Wait: time.Minute}, store,
			func(context.Context, string) (page, error) { return page{"loaded", 1}, nil }, decorator.CachePolicy{Expiry: time.Minute})
		defer pages.Close()
		if _, err := store.Claim(t.Context(), "page:a", 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), "page:a", 1, entry, time.Hour); err != nil {
			t.Fatal(err)
		}
		p, err := pages.Get(t.Context(), "a")
		if errors.Is(err, decorator.ErrNotFound) && len(entry) > 1 && entry[1] == 'n' {
			return
		}
		if err != nil {
			t.Errorf("%+v, %v", p, err)
		}
	})
}
