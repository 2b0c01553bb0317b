package core

import (
	"context"
	"fmt"
	"log/slog"
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
	e.overrides.names.Range(func(any, any) bool { kept++; return true })
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
