package cache_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestAValueThatCannotBeCachedIsAnErrorForAll(t *testing.T) {
	for name, tc := range map[string]struct {
		value any
		want  string
	}{
		"not to be encoded": {math.NaN(), "cannot be encoded"},
		"too large":         {strings.Repeat("x", 99), "it has 101 bytes and cache.Policy.MaxBytes is 100"},
	} {
		f := cache.Must(roomtest.Engine(t, memlock.New()), core.Policy{Name: "report", Key: "report:{.}"}, cache.NewMemory(cache.Limits{Entries: 9}),
			func(context.Context, string) (any, error) { return tc.value, nil }, cache.Policy{Expiry: time.Minute, MaxBytes: 100})
		v, err := f.Get(t.Context(), "a")
		if !errors.Is(err, cache.ErrValue) || v != nil || !strings.Contains(err.Error(), `"report"`) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		f.Close()
	}
}

// markOfPages is how entries begin that hold a page, or that there is none.
func markOfPages(t testing.TB) (value, nothing string) {
	t.Helper()
	locks, err := core.New(memlock.New(), core.WithNamespace("mark"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }() // nothing is held
	store := cache.NewMemory(cache.Limits{Entries: 1})
	f := cache.Must(locks, core.Policy{Key: "page:{.}"}, store, func(context.Context, string) (page, error) { return page{}, nil }, cache.Policy{Expiry: time.Minute})
	defer f.Close()
	if _, err := f.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	e, err := store.Get(t.Context(), "page:a")
	if err != nil || len(e.Value) < 7 {
		t.Fatalf("entry %q, %v", e.Value, err)
	}
	mark := string(e.Value[2:6])
	return "\xc2v" + mark, "\xc2n" + mark
}

func TestAValueThatCannotBeReadAnyMoreIsLoadedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark, _ := markOfPages(t)
		for name, old := range map[string]string{
			"another form":   `{"ID":"a"}`,
			"an older form":  "\xc1v\x00{\"ID\":\"a\"}",
			"no type":        "\xc2v",
			"no length":      mark,
			"another type":   "\xc2v\x00\x00\x00\x00\x00{\"ID\":\"a\"}",
			"another shape":  mark + "\x00[1]",
			"cut off":        mark + "\x00{\"ID\":",
			"unknown kind":   "\xc2x" + mark[2:] + "\x00{}",
			"endless number": mark + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff{}",
			"stale for ever": mark + "\xff\xff\xff\xff\xff\xff\xff\xff\x7f{}",
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
		f := cache.Must(roomtest.Engine(t, memlock.New()), core.Policy{Key: "tags:{.}", Wait: time.Minute}, cache.NewMemory(cache.Limits{Entries: 9}),
			func(context.Context, string) ([]string, error) { return []string{"new"}, nil }, cache.Policy{Expiry: time.Minute})
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
	f := cache.Must(roomtest.Engine(t, memlock.New()), core.Policy{Key: "page:{.}"}, cache.NewMemory(cache.Limits{Entries: 9}),
		func(context.Context, string) (*page, error) { return nil, nil }, cache.Policy{Expiry: time.Minute})
	t.Cleanup(f.Close)
	for range 2 {
		if v, err := f.Get(t.Context(), "a"); v != nil || err != nil {
			t.Error(v, err)
		}
	}
}

func FuzzWhatTheCacheHasIsReadOrLoadedAnew(f *testing.F) {
	value, nothing := markOfPages(f)
	f.Add([]byte(value + "\x00{\"ID\":\"a\",\"Load\":7}"))
	f.Add([]byte(nothing + "\x00"))
	f.Add([]byte(value + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	locks, err := core.New(memlock.New(), core.WithNamespace("fuzz"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = locks.Close() })
	f.Fuzz(func(t *testing.T, entry []byte) {
		store := cache.NewMemory(cache.Limits{Entries: 1})
		pages := cache.Must(locks, core.Policy{Key: "page:{.}", Wait: time.Minute}, store,
			func(context.Context, string) (page, error) { return page{"loaded", 1}, nil }, cache.Policy{Expiry: time.Minute})
		defer pages.Close()
		if _, err := store.Claim(t.Context(), "page:a", 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), "page:a", 1, entry, time.Hour); err != nil {
			t.Fatal(err)
		}
		p, err := pages.Get(t.Context(), "a")
		if errors.Is(err, cache.ErrNotFound) && len(entry) > 1 && entry[1] == 'n' {
			return
		}
		if err != nil {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// Two functions that share a store, a template and a key, by mistake.
func TestValuesOfAnotherTypeAreNotTakenForZero(t *testing.T) {
	type price struct{ Cents int }
	var logged bytes.Buffer
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	store, p := cache.NewMemory(cache.Limits{Entries: 9}), core.Policy{Key: "item:{.}"}
	pages := cache.Must(locks, p, store, func(context.Context, string) (page, error) { return page{ID: "a"}, nil }, cache.Policy{Expiry: time.Minute})
	defer pages.Close()
	prices := cache.Must(locks, p, store, func(context.Context, string) (*price, error) { return &price{7}, nil }, cache.Policy{Expiry: time.Minute})
	defer prices.Close()
	for range 2 {
		if v, err := pages.Get(t.Context(), "a"); err != nil || v.ID != "a" {
			t.Errorf("the page is %+v, %v", v, err)
		}
		if v, err := prices.Get(t.Context(), "a"); err != nil || v == nil || v.Cents != 7 {
			t.Errorf("the price is %+v, %v", v, err)
		}
	}
	if n := strings.Count(logged.String(), "two functions share them"); n != 2 {
		t.Errorf("the log says it %d times; want once for each function: %s", n, logged.String())
	}
}
