package zklock

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

func TestKeyNamesAreAllowedAndDistinct(t *testing.T) {
	seen := make(map[string]string)
	for _, key := range []string{"", ".", "..", "/", "a/b", "a%2Fb", "a b", "\x00", "é", "e\u0301", "\xff", "\xfe", "=", "a", "A", "a:b_c-d", strings.Repeat("\xff", 1024)} {
		name := keyName(key)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", key, other, name)
		}
		seen[name] = key
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' || r == '.' }) {
			t.Errorf("%q is %q, which ZooKeeper may refuse", key, name)
		}
	}
	if got := keyName("shop:a/1"); got != "=shop:a%2F1" {
		t.Errorf("shop:a/1 is %s", got)
	}
}

func FuzzKeyName(f *testing.F) {
	f.Add("a/b", "a%2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if (keyName(a) == keyName(b)) != (a == b) {
			t.Errorf("%q and %q", a, b)
		}
	})
}

func TestMembersAreReadAsTheyWereNamed(t *testing.T) {
	o := driver.Owner{1, 2, 3}
	for _, tt := range []struct {
		mode     driver.Mode
		limit    int
		capacity int32
	}{{driver.Exclusive, 0, 1}, {driver.Shared, 0, 0}, {driver.Semaphore, 1, 1}, {driver.Semaphore, 7, 7}, {driver.Semaphore, math.MaxInt, math.MaxInt32}} {
		name := memberPrefix(tt.mode, tt.limit, o) + "0000000012"
		m, ok := parseMember(name)
		if !ok || m.capacity != tt.capacity || m.seq != 12 || m.mark != mark(o) || m.name != name {
			t.Errorf("%s is %+v, %v", name, m, ok)
		}
		if mode, limit := m.mode(); mode != tt.mode || limit != min(tt.limit, math.MaxInt32) {
			t.Errorf("%s asked as %v of %d", name, mode, limit)
		}
	}
}

func TestOwnerIsNotInItsName(t *testing.T) {
	o := driver.Owner{0xab, 0xcd, 0xef, 1, 2, 3, 4, 5, 6, 7}
	if name := memberPrefix(driver.Exclusive, 0, o); strings.Contains(name, "abcdef") || bytes.Contains([]byte(name), o[:4]) {
		t.Errorf("the name %s shows its owner", name)
	}
}

func TestForeignNodesAreNoMembers(t *testing.T) {
	m := mark(driver.Owner{})
	for _, name := range []string{
		"", "x", "x-", "-" + m + "-0000000001", "y-" + m + "-0000000001", "x-" + m, "x-" + m + "-", "x-" + m + "-000000001",
		"x-" + m + "--000000001", "x-" + m + "-2147483648", "s-" + m + "-0000000001", "s0-" + m + "-0000000001",
		"s2147483648-" + m + "-0000000001", "x-" + strings.Repeat("z", 32) + "-0000000001", "lock-0000000001",
	} {
		if got, ok := parseMember(name); ok {
			t.Errorf("%q is read as %+v", name, got)
		}
	}
}

func FuzzParseMember(f *testing.F) {
	f.Add(memberPrefix(driver.Semaphore, 3, driver.Owner{9}) + "0000000001")
	f.Add("x--")
	f.Fuzz(func(t *testing.T, name string) {
		m, ok := parseMember(name)
		if ok && (m.name != name || m.seq < 0 || m.capacity < 0 || len(m.mark) != markLength) {
			t.Errorf("%q is %+v", name, m)
		}
	})
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	for _, r := range []record{
		{ttl: time.Second},
		{state: granted, ttl: 30 * time.Second},
		{state: granted, ttl: time.Hour, since: 1763740000000},
		{state: lowered, ttl: time.Second, since: 1},
	} {
		if got, err := parseRecord([]byte(r.String())); err != nil || got != r {
			t.Errorf("%v is %v, %v", r, got, err)
		}
	}
	if got := (record{ttl: time.Second + 1}).String(); got != "placed 1001" {
		t.Errorf("a second and a nanosecond is written as %s", got)
	}
}

func TestRecordsOfAnotherVersionAreRefused(t *testing.T) {
	for _, s := range []string{"", "granted", "granted x", "granted -1", "granted 1", "granted 1 2 3", "granted 1 -2", "placed", "placed 1 2", "lowered 1", "waiting 1", "kept 1", "placed 9223372036854775807", "granted 9223372036854775807 1", " granted 1"} {
		if r, err := parseRecord([]byte(s)); err == nil {
			t.Errorf("%q is read as %v", s, r)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("granted 30000 1763740000000"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		if again, err := parseRecord([]byte(r.String())); err != nil || again != r {
			t.Errorf("%q is %v, then %v, %v", data, r, again, err)
		}
	})
}

// lineOf makes a line of kinds: x, r or a semaphore's limit.
func lineOf(kinds string) line {
	var l line
	for i, k := range kinds {
		m := member{name: string(rune('a' + i)), seq: int32(i)}
		switch k {
		case 'x':
			m.capacity = 1
		case 'r':
		default:
			m.capacity = k - '0'
		}
		l = append(l, m)
	}
	return l
}

func TestThoseAtTheFrontHold(t *testing.T) {
	for _, tt := range []struct {
		line           string
		holders, lower int
	}{
		{"", 0, 0},
		{"x", 1, 1},
		{"xx", 1, 1},
		{"xrr", 1, 3},
		{"xrxr", 1, 2},
		{"rrxr", 2, 2},
		{"33333", 3, 3},
		{"35x", 2, 2},
		{"53333", 3, 3},
		{"r2r", 2, 2},
		{"2rr", 2, 2},
		{"rr2", 2, 2},
		{"x22", 1, 2},
		{"rrrr", 4, 4},
	} {
		if got := lineOf(tt.line).holders(false); got != tt.holders {
			t.Errorf("%d hold of %s, want %d", got, tt.line, tt.holders)
		}
		if got := lineOf(tt.line).holders(true); got != tt.lower {
			t.Errorf("%d hold of %s with a lowered first, want %d", got, tt.line, tt.lower)
		}
	}
}

func TestWaitersWatchWhatLetsThemIn(t *testing.T) {
	for _, tt := range []struct {
		line string
		i    int
		want string
	}{
		{"xx", 1, "a"},
		{"xxx", 2, "b"},
		{"rrx", 2, "b"},
		{"xr", 1, "a"},
		{"xrrr", 3, "a"},
		{"rxrr", 3, "b"},
		{"xrxrr", 4, "c"},
		{"222", 2, ""},
		{"2222", 3, "c"},
		{"22r", 2, ""},
		{"22rr", 3, "c"},
		{"x2", 1, "a"},
		{"22x", 2, "b"},
		{"xr3", 2, "a"},
		{"x222", 3, "c"},
		{"rx2r", 3, "b"},
	} {
		l := lineOf(tt.line)
		if got := l.target(tt.i, l.holders(false)); got != tt.want {
			t.Errorf("in %s the waiter %d watches %q, want %q", tt.line, tt.i, got, tt.want)
		}
	}
}

func TestHoldersSeeWhoWaitsBehindThem(t *testing.T) {
	for _, tt := range []struct {
		line    string
		i       int
		lowered bool
		want    int
	}{{"x", 0, false, 0}, {"xr", 0, false, 1}, {"xr", 0, true, 0}, {"xr", 1, false, 0}, {"xrx", 0, true, 1}, {"rrx", 0, false, 1}, {"rrx", 1, false, 1}, {"22", 0, false, 0}, {"222", 1, false, 1}, {"2rr", 1, false, 1}} {
		if got := lineOf(tt.line).behind(tt.i, tt.lowered); got != tt.want {
			t.Errorf("of %s the holder %d sees %d waiters, want %d", tt.line, tt.i, got, tt.want)
		}
	}
}

func TestLineIsInTheOrderOfTheServersNumbers(t *testing.T) {
	var names []string
	for i, seq := range []string{"0000000010", "0000000009", "2147483647", "0000000100"} {
		names = append(names, memberPrefix(driver.Mode(i%2), 0, driver.Owner{byte(i)})+seq)
	}
	var got []int32
	for _, m := range parseLine(append(names, "something else")) {
		got = append(got, m.seq)
	}
	if !slices.Equal(got, []int32{9, 10, 100, math.MaxInt32}) {
		t.Errorf("the order is %v", got)
	}
}

func TestServersAreTriedInTurnWithoutAPauseAtFirst(t *testing.T) {
	for n := 1; n <= 3; n++ {
		var h hosts
		_ = h.Init([]string{"a", "b", "c"}[:n]) // has no errors
		var pauses []bool
		for range 2*n + 1 {
			_, pause := h.Next()
			pauses = append(pauses, pause)
		}
		for i, pause := range pauses {
			if want := i > 0 && i%n == 0; pause != want {
				t.Errorf("of %d servers try %d: a pause before it is %v", n, i+1, pause)
			}
		}
		h.Connected()
		if _, pause := h.Next(); pause {
			t.Error("a pause before a connection that was lost is replaced")
		}
	}
}

func FuzzKeyNamesAreReadBack(f *testing.F) {
	f.Add("shop/a b", "=a%2Fb")
	f.Add("\xff%", "=%2f")
	f.Fuzz(func(t *testing.T, key, name string) {
		if back, ok := parseKeyName(keyName(key)); key != "" && (!ok || back != key) {
			t.Errorf("%q is named %q, which is read as %q, %v", key, keyName(key), back, ok)
		}
		if back, ok := parseKeyName(name); ok && keyName(back) != name {
			t.Errorf("%q is read as %q, which is named %q", name, back, keyName(back))
		}
	})
}
