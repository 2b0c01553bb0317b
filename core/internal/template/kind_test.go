package template

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// rendered is what a placeholder of a kind makes of a value.
func rendered(kind, value string) (string, error) {
	tpl, fault := compile("k:{a:"+kind+"}", values)
	if fault != nil {
		return "", fault
	}
	key, fault := tpl.Render([]string{value})
	if fault != nil {
		return "", fault
	}
	return key, nil
}

func TestKindSpellsEqualValuesOneWayAndRefusesOthers(t *testing.T) {
	for _, tc := range []struct {
		kind, want string
		equal      []string
	}{
		{"int", "k:1", []string{"1", "01", "+1", "+0001"}},
		{"int", "k:0", []string{"0", "-0", "+0", "000"}},
		{"int", "k:-7", []string{"-7", "-007"}},
		{"int", "k:18446744073709551615", []string{"18446744073709551615", "+018446744073709551615"}},
		{"int", "k:-9223372036854775808", []string{"-9223372036854775808"}},
		{"bool", "k:true", []string{"1", "t", "T", "true", "TRUE", "True"}},
		{"bool", "k:false", []string{"0", "f", "F", "false", "FALSE", "False"}},
		{"time", "k:2026-11-23T10%3A00%3A00Z", []string{"2026-11-23T10:00:00Z", "2026-11-23T11:00:00+01:00", "2026-11-23T10:00:00.000Z"}},
		{"time", "k:2026-11-23T10%3A00%3A00.5Z", []string{"2026-11-23T10:00:00.5Z", "2026-11-23T10:00:00.500000000Z", "2026-11-23T10:00:00,5Z"}},
		{"uuid", "k:6ba7b810-9dad-11d1-80b4-00c04fd430c8", []string{
			"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b8109dad11d180b400c04fd430c8",
			"urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
		}},
		{"ip", "k:2001%3Adb8%3A%3A1", []string{"2001:db8::1", "2001:0DB8:0:0:0:0:0:1"}},
		{"ip", "k:192.0.2.1", []string{"192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"}},
		{"lower", "k:anna%20k", []string{"anna k", "ANNA K", "Anna \u212a"}},
		{"lower", "k:stra%C3%9Fe", []string{"straße", "STRAẞE", "\u017ftraße"}},
		{"ascii", "k:anna", []string{"anna", "ANNA"}},
	} {
		for _, value := range tc.equal {
			if got, err := rendered(tc.kind, value); err != nil || got != tc.want {
				t.Errorf("%q as %s = %q, %v; want %q", value, tc.kind, got, err, tc.want)
			}
		}
	}
	for kind, refused := range map[string][]string{
		"int":   {"x", "1x", "0x1", "1_000", "1.0", "1e0", " 1", "1 ", "+", "-", "--1", "18446744073709551616", "-9223372036854775809", "١"},
		"bool":  {"yes", "on", "tRUE", " true", "2"},
		"time":  {"2026-11-23", "2026-11-23 10:00:00Z", "2026-11-23T10:00:00", "1700000000"},
		"uuid":  {"6ba7b810", "6ba7b810-9dad-11d1-80b4-00c04fd430cg", "(6ba7b810-9dad-11d1-80b4-00c04fd430c8)", "6ba7b8109-dad-11d1-80b4-00c04fd430c8"},
		"ip":    {"localhost", "192.0.2.01", "192.0.2.1:80", "[::1]", "1.2.3"},
		"lower": {" a", "a ", "a\u00a0", "\xff", "\t", "\u0130", "d\u0131"},
		"ascii": {" a", "a ", "é", "a\tb", "\x7f", "a\x00"},
	} {
		for _, value := range refused {
			if got, err := rendered(kind, value); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q as %s = %q, %v; want it refused as invalid", value, kind, got, err)
			}
		}
	}
	for kind := range spellers {
		if _, err := rendered(kind, ""); !errors.Is(err, ErrMissing) {
			t.Errorf("an empty %s: %v; want it to be missing", kind, err)
		}
	}
}

func TestUnknownKindIsRefusedWithTheCure(t *testing.T) {
	for template, want := range map[string][]string{
		"k:{a:itn}":      {"column 3", "{a:itn}", "did you mean {a:int}?"},
		"k:{a:}":         {"column 3", "the kinds are ascii, bool, int"},
		"k:{:int}":       {"column 3", "names nothing"},
		"k:{a:b:int}":    {"column 3", "use a to j"}, // the kind comes last
		"k:{a:int:bool}": {"column 3", "two kinds"},
		"k:{path:id}":    {"column 3", "did you mean {path.id}?"},
		"k:{order:id}":   {"column 3", "the kinds are ascii, bool, int"},
	} {
		_, fault := compile(template, values)
		for _, part := range want {
			if fault == nil || !strings.Contains(fault.Error(), part) {
				t.Errorf("%q: %v; want %q in it", template, fault, part)
			}
		}
	}
}

// An accessor may return memory of its own, which is not to be written to.
func TestKindLeavesTheMemoryOfAnAccessorAlone(t *testing.T) {
	own := append(make([]byte, 0, 100), "+01 and more"...)
	tpl, fault := compile("k:{a:int}", func(string) (Accessor[int], error) {
		return func([]byte, int) ([]byte, error) { return own[:3], nil }, nil
	})
	if fault != nil {
		t.Fatal(fault)
	}
	if key, fault := tpl.Render(0); fault != nil || key != "k:1" || string(own) != "+01 and more" {
		t.Errorf("%q, %v; the accessor's memory holds %q", key, fault, own)
	}
}

// equalAs says whether two values are equal, by the packages that handlers parse them
// with; ok is false if one of them is none.
var equalAs = map[string]func(a, b string) (equal, ok bool){
	"int": func(a, b string) (equal, ok bool) {
		parse := func(s string) (string, bool) {
			if i, err := strconv.ParseInt(s, 10, 64); err == nil {
				return strconv.FormatInt(i, 10), true
			}
			u, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 10, 64)
			return strconv.FormatUint(u, 10), err == nil && !strings.HasPrefix(s, "++")
		}
		return parsed(a, b, parse)
	},
	"bool": func(a, b string) (equal, ok bool) {
		return parsed(a, b, func(s string) (bool, bool) { v, err := strconv.ParseBool(s); return v, err == nil })
	},
	"time": func(a, b string) (equal, ok bool) {
		return parsed(a, b, func(s string) (string, bool) {
			var t time.Time
			err := t.UnmarshalText([]byte(s))
			return fmt.Sprint(t.Unix(), t.Nanosecond()), err == nil
		})
	},
	"uuid": func(a, b string) (equal, ok bool) {
		return parsed(a, b, func(s string) (string, bool) {
			s = strings.ToLower(s)
			s = strings.TrimPrefix(s, "urn:uuid:")
			if strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}") {
				s = s[1 : len(s)-1]
			}
			return strings.ReplaceAll(s, "-", ""), true
		})
	},
	"ip": func(a, b string) (equal, ok bool) {
		return parsed(a, b, func(s string) (netip.Addr, bool) { ip, err := netip.ParseAddr(s); return ip.Unmap(), err == nil })
	},
	"lower": func(a, b string) (equal, ok bool) { return strings.EqualFold(a, b), utf8.ValidString(a + b) },
	"ascii": func(a, b string) (equal, ok bool) { return strings.EqualFold(a, b), utf8.ValidString(a + b) },
}

func parsed[V comparable](a, b string, parse func(string) (V, bool)) (equal, ok bool) {
	x, ok1 := parse(a)
	y, ok2 := parse(b)
	return x == y, ok1 && ok2
}

// FuzzKinds: of each kind, equal values have one key and different values different
// ones; what a kind takes is a value to whoever parses it.
func FuzzKinds(f *testing.F) {
	for _, pair := range [][2]string{
		{"1", "01"},
		{"+1", "-1"},
		{"-0", "0"},
		{"18446744073709551615", "-9223372036854775808"},
		{"true", "T"},
		{"0", "1"},
		{"2026-11-23T10:00:00Z", "2026-11-23T11:00:00.000+01:00"},
		{"9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59"},
		{"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "URN:UUID:6BA7B810-9DAD-11D1-80B4-00C04FD430C8"},
		{"6ba7b8109dad11d180b400c04fd430c8", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}"},
		{"::ffff:192.0.2.1", "192.0.2.1"},
		{"fe80::1%eth0", "fe80::1"},
		{"straße", "STRAẞE"},
		{"i", "\u0130"},
		{"\u212a", "k"},
		{"ς", "Σ"},
	} {
		f.Add(pair[0], pair[1])
	}
	names := make([]string, 0, len(spellers))
	for name := range spellers {
		names = append(names, name)
	}
	slices.Sort(names)
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, kind := range names {
			key1, err1 := rendered(kind, a)
			key2, err2 := rendered(kind, b)
			if err1 != nil || err2 != nil {
				continue
			}
			equal, ok := equalAs[kind](a, b)
			if !ok {
				t.Errorf("%q or %q has a key as %s, and is none", a, b, kind)
			}
			if equal != (key1 == key2) {
				t.Errorf("as %s, %q has the key %s and %q has %s; equal: %v", kind, a, key1, b, key2, equal)
			}
			if again, err := rendered(kind, a); err != nil || again != key1 {
				t.Errorf("%q as %s is %s and then %s, %v", a, kind, key1, again, err)
			}
		}
	})
}
