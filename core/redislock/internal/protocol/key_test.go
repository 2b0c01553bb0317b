package protocol_test

import (
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

func FuzzKeysStayApart(f *testing.F) {
	f.Add("a}b", `a\)b`)
	f.Add(`\`, `\\`)
	f.Add("{", "}")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := protocol.Key(a), protocol.Key(b)
		if (x == y) != (a == b) {
			t.Errorf("%q and %q become %q and %q", a, b, x, y)
		}
		tag := strings.TrimSuffix(strings.TrimPrefix(x, "la1:{"), "}")
		if strings.ContainsAny(tag, "{}") || "la1:{"+tag+"}" != x {
			t.Errorf("%q becomes %q, whose hash tag is not the whole", a, x)
		}
	})
}
