package protocol_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// The shard is part of the protocol: two releases that put a key into different shards would not
// exclude each other.
func TestKeyIsNamedByItsShard(t *testing.T) {
	for in, want := range map[string]string{
		"shop:prod:stock:7": "la2:{bb}:shop:prod:stock:7",
		"{a}b":              "la2:{f8}:{a}b",
		"\x00\xff ":         "la2:{d3}:\x00\xff ",
		"":                  "la2:{c5}:",
	} {
		if got := protocol.Key(in); got != want {
			t.Errorf("Key(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestKeysSpreadOverAllShards(t *testing.T) {
	const keys = 400 * protocol.Shards
	count := make(map[string]int)
	for i := range keys {
		count[protocol.Stream(protocol.Key(fmt.Sprint("shop:prod/stock:", i)))]++
	}
	most := 0
	for _, n := range count {
		most = max(most, n)
	}
	if len(count) != protocol.Shards || most > 600 {
		t.Errorf("%d keys are in %d shards, up to %d in one", keys, len(count), most)
	}
}

func FuzzKeysStayApart(f *testing.F) {
	f.Add("a}b", "a)b")
	f.Add("{", "}")
	f.Add("", ":")
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
		if s := protocol.Stream(x); !strings.HasPrefix(x, s+":") || s == x || strings.Index(x, "}") != len(s)-1 {
			t.Errorf("%q has the stream %q, of another hash tag", x, s)
		}
		if _, ok := protocol.ParseKey(protocol.Stream(x)); ok {
			t.Errorf("the stream of %q is read as a key", x)
		}
	})
}
