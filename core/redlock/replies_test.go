package redlock

import (
	"errors"
	"strconv"
	"testing"
	"time"
)

// words is a reply of words and, in the place of numerals, numbers.
func words(ws ...string) []any {
	out := make([]any, len(ws))
	for i, w := range ws {
		out[i] = w
		if n, err := strconv.ParseInt(w, 10, 64); err == nil {
			out[i] = n
		}
	}
	return out
}

func TestMalformedRepliesAreRefused(t *testing.T) {
	good := []string{"granted", "1", "2", "3", "4", "5", "6", "1", "0", "8", "channel", "trace"}
	if a, err := parseAnswer(&command{op: opVote}, words(good...)); err != nil || a.status != statusGranted || a.left != 5*time.Millisecond || !a.first || a.firm || a.boot != 8 || a.taker != (taker{"channel", "trace"}) {
		t.Errorf("a vote's reply: %+v, %v", a, err)
	}
	owner := string(make([]byte, 16))
	if a, err := parseAnswer(&command{op: opInspect}, append(words(good...), words(owner, "9", "10", "0", owner+owner)...)); err != nil || !a.held || len(a.queue) != 2 || a.accepted != 9 {
		t.Errorf("an inspection's reply: %+v, %v", a, err)
	}
	if a, err := parseAnswer(&command{op: opVote, token: 7, ttl: time.Second}, words("1", "2", "3")); err != nil || a.status != statusGranted || a.clock != 1 || a.ticket != 2 || a.boot != 3 || a.token != 7 || a.accepted != 7 || a.left != time.Second {
		t.Errorf("a vote's short reply: %+v, %v", a, err)
	}
	if a, err := parseAnswer(&command{op: opEnd}, words("notmine", "1", "2", "3")); err != nil || a.status != statusNotMine || a.clock != 1 || a.token != 2 || a.ousted != 3 || a.boot != bootUntold {
		t.Errorf("an end's reply: %+v, %v", a, err)
	}
	if a, err := parseAnswer(&command{op: opEnd}, int64(1)); err != nil || a.status != statusEnded || a.clock != 1 || a.boot != bootUntold {
		t.Errorf("the reply to an end that has ended a vote: %+v, %v", a, err)
	}
	for _, us := range []int64{-1, 1 << 53} {
		if _, err := parseAnswer(&command{op: opEnd}, us); !errors.Is(err, errMalformed) {
			t.Errorf("an end at %d: %v", us, err)
		}
		if _, err := parseAnswer(&command{op: opVote}, []any{us, int64(0), int64(0)}); !errors.Is(err, errMalformed) {
			t.Errorf("a vote's short reply at %d: %v", us, err)
		}
	}
	if _, err := parseAnswer(&command{op: opEnd}, words(good...)); !errors.Is(err, errMalformed) {
		t.Errorf("a long reply to an end: %v", err)
	}
	for name, value := range map[string]any{
		"nil":                 nil,
		"a number":            int64(1),
		"an empty list":       []any{},
		"too short":           words(good[:11]...),
		"too long":            words(append(good, "9")...),
		"a number for a word": append(words(good[:11]...), int64(1)),
		"a numeral":           append([]any{"granted", "1"}, words(good[2:]...)...),
		"a negative number":   words("granted", "-1", "2", "3", "4", "5", "6", "1", "0", "8", "", ""),
		"2^53":                words("granted", "9007199254740992", "2", "3", "4", "5", "6", "1", "0", "8", "", ""),
		"a word":              words("granted", "x", "2", "3", "4", "5", "6", "1", "0", "8", "", ""),
	} {
		if _, err := parseAnswer(&command{op: opVote}, value); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range map[string][]any{
		"a short owner":   append(words(good...), words("abc", "9", "10", "0", "")...),
		"a short in line": append(words(good...), words("", "9", "10", "0", owner+"x")...),
	} {
		if _, err := parseAnswer(&command{op: opInspect}, value); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseAnswer(&command{op: opProbe}, words("hset")); !errors.Is(err, errMalformed) {
		t.Errorf("a probe's reply with half a pair: %v", err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("granted", int64(1), int64(16), "0123456789abcdef", uint8(12))
	f.Add("", int64(-1), int64(9007199254740993), "", uint8(17))
	f.Fuzz(func(t *testing.T, a string, b, c int64, d string, n uint8) {
		var list []any
		for i := range int(n % 20) {
			switch i {
			case 0, 10, 12:
				list = append(list, a)
			case 11, 16:
				list = append(list, d)
			default:
				list = append(list, []int64{b, c}[i%2])
			}
		}
		for _, op := range []operation{opVote, opEnd, opInspect, opProbe} {
			got, err := parseAnswer(&command{op: op}, list)
			if err == nil && op != opProbe && (got.token < 0 || got.token >= 1<<53 || got.left < 0) {
				t.Errorf("%v was read as %+v", list, got)
			}
		}
	})
}

func FuzzParsePush(f *testing.F) {
	f.Add("f0123456789abcdef")
	f.Add("")
	f.Fuzz(func(t *testing.T, payload string) {
		p, ok := parsePush(payload)
		if ok && string(p.kind)+string(p.owner[:]) != payload {
			t.Errorf("%q was read as %q", payload, p)
		}
	})
}
