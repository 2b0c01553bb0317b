package protocol_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a real server as the tests use it.
type store struct {
	t   testing.TB
	rdb *redis.Client
}

func start(t testing.TB, args ...string) *store {
	t.Helper()
	server := testservers.Redis(t, args...)
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
	return s.rdb.Eval(context.Background(), script.Source, []string{key, protocol.Stream(key)}, args...).Result()
}

func (s *store) state(key string) reference.State {
	s.t.Helper()
	return decode(s.t, s.do("EVAL", dump, 1, key))
}

// dump returns what is under a key: a string, or the fields and the values of a hash.
const dump = `
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'string' then return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])} end
return redis.call('HGETALL', KEYS[1])`

// decode reads what dump has returned, and checks what must hold of every lock. A string's lease
// ends so many ms after 0.
func decode(t testing.TB, dumped any) reference.State {
	t.Helper()
	fields, _ := dumped.([]any)
	if len(fields) == 2 {
		if left, ok := fields[1].(int64); ok {
			return thin(t, fields[0].(string), left)
		}
	}
	hash := make(map[string]string)
	for i := 0; i+1 < len(fields); i += 2 {
		hash[fields[i].(string)] = fields[i+1].(string)
	}
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
	st.Holders = holders(t, hash["s"])
	for z := hash["z"]; len(z) >= 16; z = z[16:] {
		st.Buried = append(st.Buried, z[:16])
	}
	head, next := number(hash["h"]), number(hash["n"])
	entries := 0
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
		entries += 2
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
			entries--
		}
	}
	if entries != 0 {
		t.Fatalf("%d fields of entries are outside the queue", -entries)
	}
	return st
}

// holders reads those who hold a key.
func holders(t testing.TB, s string) (all []reference.Holder) {
	t.Helper()
	for s != "" {
		var h reference.Holder
		h, s = holder(t, s)
		all = append(all, h)
	}
	return all
}

// holder reads one of those who hold a key, and returns what follows.
func holder(t testing.TB, s string) (h reference.Holder, rest string) {
	t.Helper()
	h.Owner = s[:16]
	var n int64
	s = s[16:]
	for _, to := range []*int64{&h.Room, &h.Token, &h.Expires, &h.Length, &n} {
		text, rest, _ := strings.Cut(s, ":")
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("%q where a number belongs", text)
		}
		*to, s = v, rest
	}
	h.Channel, s = s[:n], s[n:]
	if h.Owner == strings.Repeat("-", 16) {
		h.Owner = ""
	}
	return h, s
}

func thin(t testing.TB, value string, left int64) reference.State {
	t.Helper()
	h, trace := holder(t, value)
	if h.Expires != 0 || h.Room != 1 || h.Owner == "" {
		t.Fatalf("the string is %q", value)
	}
	h.Expires = left
	st := reference.State{Thin: true, Holders: []reference.Holder{h}}
	if trace != "" {
		st.Traces = map[string]string{"d": h.Owner + trace}
	}
	return st
}

// withClock returns a script's source for a server whose clock is the list "clock". What is
// published is appended to the list "published". When a key expires is at its name behind "until:".
func withClock(source string) string { return virtual + source }

const virtual = `
local real, clock = redis, redis.call('LRANGE', 'clock', 0, 1)
local at = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function text(n) return string.format('%.0f', n) end
local commands = {}
function commands.TIME() return clock end
function commands.PTTL(key)
  local till = real.call('GET', 'until:' .. key)
  if till then return till - at end
  return real.call('EXISTS', key) == 1 and -1 or -2
end
function commands.PEXPIRE(key, ms) return real.call('SET', 'until:' .. key, text(at + ms)) and 1 end
function commands.PUBLISH(channel, message) return real.call('RPUSH', 'published', channel, message) end
function commands.DEL(key)
  real.call('DEL', 'until:' .. key)
  return real.call('DEL', key)
end
function commands.SET(key, value, ...)
  local o = {...}
  if o[1] == 'NX' and real.call('EXISTS', key) == 1 then return false end
  for n = 1, #o do
    if o[n] == 'PX' then real.call('SET', 'until:' .. key, text(at + o[n + 1])) end
  end
  return real.call('SET', key, value)
end
function commands.XADD(stream, first, _, _, id, other)
  if first == 'NOMKSTREAM' then
    if real.call('EXISTS', 'last:' .. stream) == 0 then return false end
    id = other
  end
  if id ~= '*' then
    real.call('SET', 'last:' .. stream, id)
    return id
  end
  local ms, n = string.match(real.call('GET', 'last:' .. stream) or '0-0', '^(%d+)-(%d+)$')
  if at > ms + 0 then ms, n = text(at), '0' else n = text(n + 1) end
  real.call('SET', 'last:' .. stream, ms .. '-' .. n)
  return ms .. '-' .. n
end
local function via(call, name, key, ...)
  local till = name ~= 'PUBLISH' and key and real.call('GET', 'until:' .. key)
  if till and till + 0 <= at then real.call('DEL', key, 'until:' .. key) end
  if commands[name] then return commands[name](key, ...) end
  return call(name, key, ...)
end
local redis = {
  error_reply = real.error_reply,
  call = function(...) return via(real.call, ...) end,
  pcall = function(...) return via(real.pcall, ...) end,
}
`

func owner(n int) driver.Owner {
	var o driver.Owner
	copy(o[:], "owner-"+strconv.Itoa(n)+"\x00\xff\n:}{%")
	o[15] = byte(n)
	return o
}

func name(n int) string { o := owner(n); return string(o[:]) }

const second = time.Second
