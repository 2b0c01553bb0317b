package etcdlock

import (
	"net/url"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// FuzzNamesStayApart: what belongs to one key is found by what its names begin with, and
// nothing of another key is.
func FuzzNamesStayApart(f *testing.F) {
	f.Add("a", "a/q")
	f.Add("a/", "a%2F")
	f.Add("", "/")
	f.Add("..", ".")
	f.Add("\xff", "%FF")
	f.Fuzz(func(t *testing.T, a, b string) {
		prefix := keyPrefixOf(a)
		if strings.HasPrefix(namesOf(driver.ID{Key: b}).place, prefix) != (a == b) || strings.HasPrefix(namesOf(driver.ID{Key: b}).contended, prefix) != (a == b) {
			t.Errorf("%q has %q, and %q has %q", a, prefix, b, keyPrefixOf(b))
		}
		if back, err := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(prefix, KeyPrefix), "/")); err != nil || back != a {
			t.Errorf("%q reads back as %q, %v", prefix, back, err)
		}
	})
}
