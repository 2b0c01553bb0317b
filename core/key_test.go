package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestKeyAloneIsTheOneThatIsLocked(t *testing.T) {
	const text = "stock:{.}/all"
	key, err := core.NewKey(text, core.Fields[string]())
	if err != nil {
		t.Fatal(err)
	}
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: text}, core.Fields[string]())
	for _, v := range []string{"a", "a:b", "ä", strings.Repeat("x", 500)} {
		l, err := g.Acquire(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := key(v); err != nil || got != l.Key() {
			t.Errorf("%q: rendered %q, %v; locked %q", v, got, err, l.Key())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestKeyAloneIsRefusedAsThatOfALockIs(t *testing.T) {
	for text, says := range map[string]string{"": "empty", "{.": "never closed", "{x}": "no fields"} {
		_, err := core.NewKey(text, core.Fields[string]())
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v; want an ErrPolicy about %q", text, err, says)
		}
	}
	if _, err := core.NewKey[string]("k", nil); !errors.Is(err, core.ErrPolicy) {
		t.Errorf("without a resolver: got %v", err)
	}
	key, err := core.NewKey("{.}:"+strings.Repeat("x", core.MaxKeyLength-101), core.Fields[string]())
	if err != nil {
		t.Fatal(err)
	}
	for v, says := range map[string]string{"": "{.}", strings.Repeat("y", 101): "1025 bytes"} {
		if _, err := key(v); !errors.Is(err, core.ErrKey) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v; want an ErrKey about %q", v, err, says)
		}
	}
	if got, err := key(strings.Repeat("y", 100)); err != nil || len(got) != core.MaxKeyLength {
		t.Errorf("the longest key: %d bytes, %v", len(got), err)
	}
}
