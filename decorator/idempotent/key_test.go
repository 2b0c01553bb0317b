package idempotent_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/decorator/idempotent"
)

func TestFieldsOfOneKeyAreEqual(t *testing.T) {
	long := strings.Repeat("k", idempotent.MaxKeyBytes)
	for field, want := range map[string]string{
		`8e03978e-40d5`:        "8e03978e-40d5",
		`"8e03978e-40d5"`:      "8e03978e-40d5",
		" \t\"8e03978e\" ":     "8e03978e",
		`"a \"b\" \\ c"`:       `a "b" \ c`,
		`a/b+c=:{}'`:           `a/b+c=:{}'`,
		`"` + long + `"`:       long,
		long:                   long,
		"":                     "",
		" ":                    "",
		`""`:                   "",
		`"`:                    "",
		`"a`:                   "",
		`a"`:                   "",
		`"a"b`:                 "",
		`"a"; b=1`:             "",
		`"a", "b"`:             "",
		`a,b`:                  "",
		`a b`:                  "",
		`a;b`:                  "",
		`a\b`:                  "",
		`"a\b"`:                "",
		`"a\`:                  "",
		"a\x00":                "",
		"\"\x7f\"":             "",
		"\"\n\"":               "",
		"é":                    "",
		`"é"`:                  "",
		long + "k":             "",
		`"` + long + "k" + `"`: "",
	} {
		key, err := idempotent.ParseKey(field)
		if key != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", field, key, err, want)
		}
	}
}

// A key is found again in quotes, and bare if it can be; nothing else is one.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"a", `"a"`, `"a\"b"`, `"\\"`, "", `"`, "a,b", "é", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, field string) {
		key, err := idempotent.ParseKey(field)
		if (err == nil) != (key != "") || len(key) > idempotent.MaxKeyBytes {
			t.Fatalf("%q is %q, %v", field, key, err)
		}
		if err != nil {
			return
		}
		for _, c := range []byte(key) {
			if c < ' ' || c > '~' {
				t.Errorf("%q has the byte %#x", key, c)
			}
		}
		if again, err := idempotent.ParseKey(strconv.Quote(key)); err != nil || again != key {
			t.Errorf("%q in quotes is %q, %v", key, again, err)
		}
		if again, err := idempotent.ParseKey(key); err == nil && again != key && !strings.ContainsAny(key, ` "`) {
			t.Errorf("%q bare is %q", key, again)
		}
	})
}
