package protocol_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func TestKeyIsOneHashTag(t *testing.T) {
	for in, want := range map[string]string{
		"shop:prod:stock:7": "la1:{shop:prod:stock:7}",
		"shop/stock:A%3A1":  "la1:{shop/stock:A%3A1}",
		"{a}b":              `la1:{\(a\)b}`,
		`a\)b`:              `la1:{a\\)b}`,
		"\x00\xff ":         "la1:{\x00\xff }",
	} {
		if got := protocol.Key(in); got != want {
			t.Errorf("Key(%q) = %q, want %q", in, got, want)
		}
	}
}

// All keys of up to six of the characters that a key's name writes otherwise, or that
// stand in their place.
func TestNoTwoKeysHaveOneName(t *testing.T) {
	const characters = `\{}()a`
	named := make(map[string]string)
	keys := []string{""}
	for range 6 {
		for _, key := range keys[:len(keys):len(keys)] {
			for i := range len(characters) {
				keys = append(keys, key+characters[i:i+1])
			}
		}
		keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	}
	for _, key := range keys {
		name := protocol.Key(key)
		if other, ok := named[name]; ok {
			t.Fatalf("%q and %q are both named %q", key, other, name)
		}
		named[name] = key
		if back, ok := protocol.ParseKey(name); !ok || back != key {
			t.Fatalf("%q is named %q, which is read as %q, %v", key, name, back, ok)
		}
	}
	if want := (6*6*6*6*6*6*6 - 1) / 5; len(named) != want {
		t.Errorf("%d keys, want %d", len(named), want)
	}
}

func FuzzKeysStayApart(f *testing.F) {
	f.Add("a}b", `a\)b`)
	f.Add(`\`, `\\`)
	f.Add("{", "}")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := protocol.Key(a), protocol.Key(b)
		if (x == y) != (a == b) {
			t.Errorf("%q and %q become %q and %q", a, b, x, y)
		}
		if back, ok := protocol.ParseKey(x); !ok || back != a {
			t.Errorf("%q becomes %q, which is read as %q, %v", a, x, back, ok)
		}
		if key, ok := protocol.ParseKey(b); ok && protocol.Key(key) != b {
			t.Errorf("%q is read as %q, which is named otherwise", b, key)
		}
		tag := strings.TrimSuffix(strings.TrimPrefix(x, "la1:{"), "}")
		if strings.ContainsAny(tag, "{}") || "la1:{"+tag+"}" != x {
			t.Errorf("%q becomes %q, whose hash tag is not the whole", a, x)
		}
	})
}
