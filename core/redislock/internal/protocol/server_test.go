package protocol_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a real server as the tests use it.
type store struct {
	t   testing.TB
	rdb *redis.Client
}

func start(t testing.TB, args ...string) *store {
	t.Helper()
	server := redistest.Start(t, args...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialTimeout: time.Minute, ReadTimeout: time.Minute})
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return &store{t: t, rdb: rdb}
}

func (s *store) do(args ...any) any {
	s.t.Helper()
	v, err := s.rdb.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args[0], err)
	}
	return v
}

func (s *store) run(script protocol.Script, key string, args []any) (any, error) {
	return s.rdb.Eval(context.Background(), script.Source, []string{key}, args...).Result()
}

func (s *store) state(key string) reference.State {
	s.t.Helper()
	hash, err := s.rdb.HGetAll(context.Background(), key).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return decode(s.t, hash)
}

// decode reads a lock's hash, and checks what must hold of every hash.
func decode(t testing.TB, hash map[string]string) reference.State {
	t.Helper()
	number := func(text string) int64 {
		if text == "" {
			return 0
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("the hash holds %q where a number belongs", text)
		}
		return n
	}
	st := reference.State{Token: number(hash["t"]), Ousted: number(hash["u"])}
	o := hash["o"]
	if number(hash["c"]) > 0 {
		var marked bool
		if o, marked = strings.CutSuffix(o, "*"); !marked {
			t.Fatalf("some wait, but o is %q", o)
		}
	}
	if (o == "+") != (hash["s"] != "") {
		t.Fatalf("o is %q, but s %q", hash["o"], hash["s"])
	}
	switch o {
	case "":
	case "+":
		st.Holders = sharers(t, hash)
	default:
		h := reference.Holder{Owner: o, Channel: hash["p"], Room: 1, Token: st.Token, Expires: number(hash["x"]), Length: number(hash["l"])}
		if o == "-" {
			h.Owner = ""
		}
		st.Holders = []reference.Holder{h}
	}
	for z := hash["z"]; len(z) >= 16; z = z[16:] {
		st.Ended = append(st.Ended, z[:16])
	}
	head, next := number(hash["h"]), number(hash["n"])
	fields := 0
	for i := head; i < next; i++ {
		w, ok := hash["w"+strconv.FormatInt(i, 10)]
		if !ok {
			continue
		}
		owner, rest := w[:16], w[16:]
		placeTTL, rest, _ := strings.Cut(rest, ":")
		limit, rest, _ := strings.Cut(rest, ":")
		room, channel, _ := strings.Cut(rest, ":")
		if hash["i"+owner] != strconv.FormatInt(i, 10) {
			t.Fatalf("entry %d has index %q", i, hash["i"+owner])
		}
		st.Queue = append(st.Queue, reference.Place{Owner: owner, Channel: channel, PlaceTTL: number(placeTTL), Limit: number(limit), Room: number(room)})
		fields += 2
	}
	if n := number(hash["c"]); int(n) != len(st.Queue) {
		t.Fatalf("the hash counts %d entries and has %d", n, len(st.Queue))
	}
	for name, value := range hash {
		switch {
		case name[0] == 'd':
			if st.Traces == nil {
				st.Traces = make(map[string]string)
			}
			st.Traces[name] = value
			if len(value) != 16+driver.TraceSize {
				t.Fatalf("field %s has %d bytes", name, len(value))
			}
		case len(name) > 1:
			fields--
		}
	}
	if fields != 0 {
		t.Fatalf("%d fields of entries are outside the queue", -fields)
	}
	return st
}

// sharers reads those who hold together.
func sharers(t testing.TB, hash map[string]string) (all []reference.Holder) {
	t.Helper()
	first := int64(math.MaxInt64)
	for s := hash["s"]; s != ""; {
		h := reference.Holder{Owner: s[:16]}
		var n int64
		s = s[16:]
		for _, to := range []*int64{&h.Room, &h.Token, &h.Expires, &h.Length, &n} {
			text, rest, _ := strings.Cut(s, ":")
			v, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatalf("%q in s", text)
			}
			*to, s = v, rest
		}
		h.Channel, s = s[:n], s[n:]
		if h.Owner == strings.Repeat("-", 16) {
			h.Owner = ""
		}
		first = min(first, h.Expires)
		all = append(all, h)
	}
	if x := hash["x"]; x != strconv.FormatInt(first, 10) {
		t.Fatalf("x is %s, but the first of those who share is over at %d", x, first)
	}
	return all
}

// withClock returns a script's source with the time read from the list "clock",
// everything published appended to the list "published", and the moments until
// which the hash shall be kept to the list "kept:" and its key.
func withClock(t testing.TB, script protocol.Script) string {
	t.Helper()
	const time, publish = "redis.call('TIME')", "redis.pcall('PUBLISH', "
	if strings.Count(script.Source, time) != 1 || !strings.Contains(script.Source, publish) {
		t.Fatalf("script %s does not read the time once, or publishes in another way", script.Name)
	}
	source := strings.Replace(script.Source, time, "redis.call('LRANGE', 'clock', 0, 1)", 1)
	source = strings.ReplaceAll(source, publish, "redis.call('RPUSH', 'published', ")
	return strings.ReplaceAll(source, "redis.call('PEXPIRE', key, ", "redis.call('RPUSH', 'kept:' .. key, now + ")
}

func owner(n int) driver.Owner {
	var o driver.Owner
	copy(o[:], "owner-"+strconv.Itoa(n)+"\x00\xff\n:}{%")
	o[15] = byte(n)
	return o
}

func name(n int) string { o := owner(n); return string(o[:]) }

const second = time.Second
