package surfacetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/lockaround/lockaround/core"
)

// Probe notes what calls act on, and under which lock. Its zero value is ready for use, by
// one test at a time and any number of goroutines.
type Probe struct {
	mu      sync.Mutex
	current string // the request that is under way
	acts    []act
}

type act struct {
	value   any
	key     string // empty without a lock
	request string
}

// Acts is what a handler calls with the value that it is about to act on, and with the
// context that its lock has given it. The value is comparable, and equal to another one if
// the handler would act on the same thing: parsed, and normalised as a database compares
// it. For a time that is t.UnixNano().
func (p *Probe) Acts(ctx context.Context, value any) {
	a := act{value: value}
	if l, ok := core.LeaseFrom(ctx); ok {
		a.key = strings.Join(l.Keys(), " and ")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.request = p.current
	p.acts = append(p.acts, a)
}

// trying notes that a request is sent.
func (p *Probe) trying(request string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = request
}

// judge returns what was wrong with what was noted since the last time, and forgets it.
func (p *Probe) judge() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := faults(p.acts)
	p.acts = nil
	return found
}

func faults(acts []act) []string {
	var found []string
	byValue, byKey := map[any]act{}, map[string]act{}
	for _, a := range acts {
		if a.key == "" {
			found = append(found, fmt.Sprintf("%s: acts on %#v without a lock", a.request, a.value))
			continue
		}
		if other, known := byValue[a.value]; !known {
			byValue[a.value] = a
		} else if other.key != a.key {
			found = append(found, fmt.Sprintf("%s: acts on %#v under %q, and %s does so under %q", a.request, a.value, a.key, other.request, other.key))
		}
		if other, known := byKey[a.key]; !known {
			byKey[a.key] = a
		} else if other.value != a.value {
			found = append(found, fmt.Sprintf("%s: acts on %#v under %q, and under that %s acts on %#v", a.request, a.value, a.key, other.request, other.value))
		}
	}
	if len(byValue) < 2 && len(found) == 0 {
		found = append(found, fmt.Sprintf("calls have acted on %d values, which shows nothing; look whether the requests fit the handler, and whether that tells the probe", len(byValue)))
	}
	return found
}

// spellings are texts that somebody might take for equal, and others that are nearly so.
var spellings = []string{
	// numbers
	"1", "2", "01", "001", "+1", "-1", "-01", "+01", "0", "-0", "+0", "00", "1.0", "1.", "1e0", "1E0", "10e-1", "0x1", "0X1", "0b1", "0o1", "1_0", "10",
	"１", "١", "1 ", " 1", "1\u00a0", "\t1", "1\x00", "1L", "1n", "--1", "9007199254740992", "9007199254740993",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616", "18446744073709551617",
	"257", "65537", "4294967297", "NaN", "Infinity", "null", "nil",
	// booleans
	"true", "TRUE", "True", "t", "T", "false", "FALSE", "False", "f", "F", "tRUE", "yes", "on", "off",
	// times
	"2026-11-23T10:00:00Z", "2026-11-23T11:00:00+01:00", "2026-11-23T10:00:00.000Z", "2026-11-23T10:00:00.0000000001Z", "2026-11-23T10:00:00z", "2026-11-23T10:00:01Z", "2026-11-23",
	// identifiers
	"6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "6ba7b8109dad11d180b400c04fd430c8",
	"{6ba7b810-9dad-11d1-80b4-00c04fd430c8}", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6ba7b810-9dad-11d1-80b4-00c04fd430c9",
	// addresses
	"192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201", "192.0.2.01", "2001:db8::1", "2001:0DB8:0:0::1", "[2001:db8::1]",
	// names
	"anna", "Anna", "ANNA", "anna ", " anna", "anna\u00a0", "änna", "a\u0308nna", "ann\u0430", "k", "K", "\u212a", "s", "S", "ſ", "ß", "ẞ", "ss", "i", "I", "ı", "İ", "ﬁ", "fi",
	"anna\x00", "anna\t", "anna\u200b", "\ufeffanna", "a\u00adnna",
	// what a syntax has a meaning for
	"a/b", "a%2Fb", "a%2fb", "a;b", "a&b", "a=b", "a#b", "a?b", "a+b", "a b", "a%20b", "a\\b", "a\"b", "a'b", "a:b", "a,b", "{a}", "[a]", "$a", "%", "%zz", "..", ".", "a.", "~a", "*", "-", "\xff", "\xc0\xaf",
	"",
}

// written is one way to write a value in a place of a request.
type written struct {
	text  string
	plain bool // as most clients write it
}

// inURL writes a value for a path or a query, where escape is how clients do it.
func inURL(value string, escape func(string) string) []written {
	all := []written{{escape(value), true}}
	var every strings.Builder
	for i := range len(value) {
		fmt.Fprintf(&every, "%%%02x", value[i])
	}
	add := func(text string) {
		for _, w := range all {
			if w.text == text {
				return
			}
		}
		all = append(all, written{text: text})
	}
	add(every.String())
	if !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '#' }) {
		add(value)
	}
	return all
}

func inQuery(value string) []written { return inURL(value, url.QueryEscape) }

func inPath(value string) []written { return inURL(value, url.PathEscape) }

// inHeader writes a value for a header. One that would end the line cannot be.
func inHeader(value string) []written {
	if strings.ContainsAny(value, "\r\n\x00") {
		return nil
	}
	return []written{{value, true}}
}

// inJSON writes a value for the inside of a string.
func inJSON(value string) []written {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	var every strings.Builder
	for _, r := range value {
		if r > 0xffff {
			return []written{{string(text[1 : len(text)-1]), true}}
		}
		fmt.Fprintf(&every, "\\u%04X", r)
	}
	return []written{{string(text[1 : len(text)-1]), true}, {every.String(), false}}
}

// inBare writes a value for a place of JSON that is no string.
func inBare(value string) []written { return []written{{value, true}} }
