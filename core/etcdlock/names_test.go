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
		if strings.HasPrefix(namesOf(driver.ID{Key: b}).withPlace(7, driver.Origin{}).place, prefix) != (a == b) || strings.HasPrefix(namesOf(driver.ID{Key: b}).contended, prefix) != (a == b) {
			t.Errorf("%q has %q, and %q has %q", a, prefix, b, keyPrefixOf(b))
		}
		if back, err := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(prefix, KeyPrefix), "/")); err != nil || back != a {
			t.Errorf("%q reads back as %q, %v", prefix, back, err)
		}
	})
}

func TestNameOfAPlaceSaysWhereItComesFrom(t *testing.T) {
	trace := &driver.Trace{TraceID: [16]byte{0, 0xff, 'a'}, SpanID: [8]byte{'/', '*'}, Flags: 1}
	for _, from := range []driver.Origin{
		{},
		{Identity: "orders-7f9c"},
		{Identity: "shop/orders:8080//q/" + strings.Repeat("0", 32)},
		{Trace: trace},
		{Identity: "orders-7f9c", Trace: trace},
	} {
		for _, key := range []string{"k", "a/b*c", "%2F/q/x", ""} {
			id := driver.ID{Key: key, Owner: driver.Owner{1, 2}}
			n := namesOf(id).withPlace(7, from)
			if got := originOf(n.place); got.Identity != from.Identity || (got.Trace == nil) != (from.Trace == nil) || got.Trace != nil && *got.Trace != *from.Trace {
				t.Errorf("%q is read as from %+v, want %+v", n.place, got, from)
			}
		}
	}
	for _, name := range []string{"", "la1/k/q/", "la1/k/q/short/orders", "la1/k/k/" + strings.Repeat("0", 31), "la1/k/q/" + strings.Repeat("0", 32) + "orders"} {
		if got := originOf(name); got.Known() {
			t.Errorf("%q is read as from %+v", name, got)
		}
	}
}
