package core

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/memlock"
)

// A program that makes names of values does not fill the memory of its engine.
func TestManyNamesAreNotKeptForSuggestions(t *testing.T) {
	e, err := New(memlock.New(), WithNamespace("test"), WithLogger(slog.New(slog.DiscardHandler)), WithOverrides(map[string]Override{"the last": {Wait: new(time.Second)}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	use := func(name string) {
		t.Helper()
		if err := e.Do(t.Context(), Policy{Name: name, Key: "k"}, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 * maxNames {
		use(fmt.Sprint(i))
	}
	kept := 0
	e.overrides.Load().names.Range(func(any, any) bool { kept++; return true })
	if kept != maxNames {
		t.Errorf("%d names are kept, want %d", kept, maxNames)
	}
	if err := e.CheckOverrides(); err == nil || !strings.Contains(err.Error(), "no policy has this name; use a policy's Name, or its template") {
		t.Errorf("got %v", err)
	}
	use("the last")
	if err := e.CheckOverrides(); err != nil {
		t.Error(err)
	}
}

// Nor does one that makes guards as it goes.
func TestGuardsThatAreGoneAreForgotten(t *testing.T) {
	e, err := New(memlock.New(), WithNamespace("test"), WithLogger(slog.New(slog.DiscardHandler)), WithOverrides(map[string]Override{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	for i := range 1000 {
		if _, err := NewGuard(e, Policy{Name: "n", Key: "k:{.}"}, Fields[string]()); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			runtime.GC()
		}
	}
	if n := len(e.guards.all); n > 500 {
		t.Errorf("%d guards are remembered", n)
	}
}
