package protocol_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// call is one run of a script on one key.
type call struct {
	script protocol.Script
	key    string
	args   []any
}

func (c call) String() string {
	words, err := reference.Words(c.args)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %q %q", c.script.Name, c.key, words)
}

// step is what the server runs at one moment: one call, or as many as Joint runs
// together.
type step struct {
	at    time.Time
	flush bool // before the calls
	joint bool
	calls []call
}

func (s step) String() string {
	text := fmt.Sprint(s.at.UnixMicro())
	if s.flush {
		text += " flushed,"
	}
	if s.joint {
		text += " together"
	}
	for _, c := range s.calls {
		text += " " + c.String()
	}
	return text
}

// profile is a kind of random history.
type profile struct {
	name    string
	owners  int           // how many to choose from when none in particular is meant
	fresh   float64       // share of requests by owners never seen before
	jump    time.Duration // the longest usual time between two steps
	leap    float64       // share of steps some seconds after the one before
	back    float64       // share of steps before the one before
	endings float64       // share of steps that end something
	lengths []int         // ms
	modes   []mode        // to choose from; none: all are exclusive
}

// mode is what an owner asks for.
type mode struct {
	driver.Mode
	limit int
}

var (
	readWrite = []mode{{driver.Exclusive, 0}, {driver.Shared, 0}, {driver.Shared, 0}, {driver.Shared, 0}}
	permits   = []mode{{driver.Semaphore, 3}, {driver.Semaphore, 3}, {driver.Semaphore, 3}, {driver.Semaphore, 2}}
	mixed     = []mode{{driver.Exclusive, 0}, {driver.Shared, 0}, {driver.Semaphore, 4}, {driver.Semaphore, 1}, {driver.Semaphore, 2}}
)

var profiles = []profile{
	{name: "few", owners: 8, fresh: 0.1, jump: 300 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.25, lengths: []int{10, 300, 3000, 5000, 30000}},
	{name: "fresh", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.3, lengths: []int{10, 300, 3000, 5000, 30000}},
	{name: "crowd", owners: 200, fresh: 0.9, jump: 10 * time.Millisecond, leap: 0.008, back: 0.003, endings: 0.12, lengths: []int{3000}},
	{name: "readers and writers", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.3, lengths: []int{10, 300, 3000, 5000, 30000}, modes: readWrite},
	{name: "permits", owners: 12, fresh: 0.5, jump: 200 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.2, lengths: []int{10, 300, 3000, 5000, 30000}, modes: permits},
	{name: "mixed", owners: 12, fresh: 0.5, jump: 100 * time.Millisecond, leap: 0.02, back: 0.03, endings: 0.25, lengths: []int{10, 300, 3000, 5000, 30000}, modes: mixed},
	{name: "crowd of all kinds", owners: 200, fresh: 0.9, jump: 10 * time.Millisecond, leap: 0.008, back: 0.003, endings: 0.12, lengths: []int{3000}, modes: mixed},
}

// history makes the steps of one history, each in view of what came before.
type history struct {
	profile
	*rand.Rand
	at   time.Time
	keys []string // most happens to the first
	last int      // owner that is new
}

func (h *history) ms(ms ...int) time.Duration {
	return time.Duration(ms[h.IntN(len(ms))]) * time.Millisecond
}

func (h *history) upTo(d time.Duration) time.Duration {
	return time.Duration(h.Int64N(int64(d))).Truncate(time.Microsecond)
}

// owner chooses one: who holds, who waits, or any of the latest.
func (h *history) owner(st reference.State) driver.Owner {
	var o driver.Owner
	switch x := h.Float64(); {
	case x < 0.3 && len(st.Holders) > 0:
		copy(o[:], st.Holders[h.IntN(len(st.Holders))].Owner)
	case x < 0.6 && len(st.Queue) > 0:
		copy(o[:], st.Queue[h.IntN(len(st.Queue))].Owner)
	default:
		o = owner(max(0, h.last-h.IntN(h.owners)))
	}
	return o
}

func (h *history) newOwner(st reference.State) driver.Owner {
	if h.Float64() < h.fresh {
		h.last++
		return owner(h.last)
	}
	return h.owner(st)
}

// next goes on to the next moment, and says what else precedes its calls and how many
// they are.
func (h *history) next() (s step, calls int) {
	switch x := h.Float64(); {
	case x < h.back:
		h.at = h.at.Add(-h.upTo(8 * second))
	case x < h.back+h.leap:
		h.at = h.at.Add(h.upTo(8 * second))
	case x < 0.85:
		h.at = h.at.Add(h.upTo(h.jump))
	}
	s = step{at: h.at, flush: h.Float64() < 0.002, joint: h.IntN(3) == 0}
	if s.joint {
		return s, 1 + h.IntN(5)
	}
	return s, 1
}

func (h *history) key() string {
	if h.Float64() < 0.8 {
		return h.keys[0]
	}
	return h.keys[h.IntN(len(h.keys))]
}

// call chooses what is done to a key in this state.
func (h *history) call(key string, st reference.State) call {
	s := call{key: key}
	length := h.ms(h.lengths...)
	placeTTL := protocol.PlaceTTL(length)
	m := mode{}
	if len(h.modes) > 0 {
		m = h.modes[h.IntN(len(h.modes))]
	}
	channel := func(o driver.Owner) string { return "channel:" + strconv.Itoa(int(o[15])%3) }
	switch x := h.Float64(); {
	case x < h.endings:
		s.script = protocol.End
		a := protocol.EndArgs{Owner: h.owner(st), Keep: h.ms(0, 0, 0, 100, 3000)}
		if h.IntN(3) == 0 {
			next := h.newOwner(st)
			a.Next = &protocol.Next{Owner: next, Channel: channel(next), Length: length, PlaceTTL: placeTTL, Mode: m.Mode, Limit: m.limit}
		}
		s.args = a.Args()
	case x < h.endings+0.1:
		s.script, s.args = protocol.Renew, protocol.RenewArgs{Owner: h.owner(st), TTL: length, Share: h.IntN(8) == 0}.Args()
	case x < h.endings+0.12:
		s.script = protocol.Inspect
	case x < h.endings+0.125:
		upTo := st.Token
		if len(st.Holders) > 0 {
			upTo = st.Holders[h.IntN(len(st.Holders))].Token
		}
		s.script, s.args = protocol.Oust, protocol.OustArgs{UpTo: upTo}.Args()
	default:
		o := h.newOwner(st)
		s.script = protocol.Acquire
		s.args = protocol.AcquireArgs{
			Owner: o, Channel: channel(o), Length: length, PlaceTTL: placeTTL,
			Create: h.IntN(4) > 0, Wait: h.IntN(6) > 0, Mode: m.Mode, Limit: m.limit,
		}.Args()
	}
	return s
}

// TestScriptsFollowTheReference runs random histories of a few keys against a real
// server and the reference, by a clock of the test's that also leaps and steps back, and
// compares every reply, all that is known of all keys, and the messages after every step.
// LOCKAROUND_PROTOCOL_STEPS says how many steps; the default is 22,000.
func TestScriptsFollowTheReference(t *testing.T) {
	const each = 250
	total := 22_000
	if text := os.Getenv("LOCKAROUND_PROTOCOL_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("LOCKAROUND_PROTOCOL_STEPS: %v", err)
		}
		total = n
	}
	s := start(t)
	shas := make(map[string]string)
	for _, script := range protocol.Scripts() {
		sha, err := s.rdb.ScriptLoad(context.Background(), withClock(t, script)).Result()
		if err != nil {
			t.Fatal(err)
		}
		shas[script.Name] = sha
	}
	seen := make(map[string]int)
	for seed := range (total + each - 1) / each {
		p := profiles[seed%len(profiles)]
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		h := &history{profile: p, Rand: r, at: time.UnixMicro(1_700_000_000_000_000 + r.Int64N(600_000_000))}
		for n := range 3 {
			h.keys = append(h.keys, protocol.Key(fmt.Sprintf("seed {%d}, %d", seed, n)))
		}
		compare(t, s, shas, h, seed, each, seen)
	}
	t.Log(seen)
	for _, what := range []string{
		"acquire granted", "acquire queued", "acquire busy", "acquire over",
		"end ended", "end withdrawn", "end notmine", "end absent", "more",
		"end next granted", "end next queued", "end next over", "renew ok", "renew lost", "push g", "push w", "push l",
		"oust 0", "oust 1", "oust 3", "held by 0", "held by 1", "held by 2", "held by 5",
		"together 1", "together 5", "one key twice together",
	} {
		if seen[what] == 0 && total >= 20_000 {
			t.Errorf("no history contained %q", what)
		}
	}
}

func compare(t *testing.T, s *store, shas map[string]string, h *history, seed, steps int, seen map[string]int) {
	t.Helper()
	ctx := context.Background()
	var at time.Time
	model := reference.New(func() time.Time { return at })
	var done []step
	kept := make(map[string]int64) // until when the server keeps a hash
	for i := range steps {
		st, calls := h.next()
		at = st.at
		if st.flush {
			model.Flush()
			clear(kept)
		}
		where := func() string {
			text := fmt.Sprintf("profile %s, seed %d, step %d", h.name, seed, i)
			for _, d := range done[max(0, i-12):] {
				text += "\n  " + d.String()
			}
			return text
		}

		// Each call is chosen, and run by the reference, in view of those before it.
		var want []any
		var flat []string // channels and what is published there
		for len(st.calls) < calls {
			key := h.key()
			c := h.call(key, model.State(key))
			if st.joint && !protocol.Joins(&c.script) {
				continue
			}
			reply, messages, err := model.Run(c.script.Name, key, c.args)
			if err != nil {
				t.Fatalf("%v\n%s\n  %s", err, where(), c)
			}
			for _, m := range messages {
				flat = append(flat, m.Channel, m.Payload)
				seen["push "+m.Payload[:1]]++
				if p, err := protocol.ParsePush(m.Payload); err != nil || p.Key != key {
					t.Fatalf("push %q: %v\n%s", m.Payload, err, where())
				}
			}
			if slices.ContainsFunc(st.calls, func(o call) bool { return o.key == key }) {
				seen["one key twice together"]++
			}
			st.calls, want = append(st.calls, c), append(want, reply)
		}
		done = append(done, st)

		var reply *redis.Cmd
		var published *redis.StringSliceCmd
		keeps := make([]*redis.StringSliceCmd, len(h.keys))
		hashes := make([]*redis.MapStringStringCmd, len(h.keys))
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			if st.flush {
				p.Del(ctx, h.keys...)
			}
			p.Del(ctx, "clock", "published")
			p.RPush(ctx, "clock", at.Unix(), at.Nanosecond()/1000)
			if st.joint {
				var keys []string
				var args []any
				for _, c := range st.calls {
					keys, args = append(keys, c.key), protocol.JointArgs(args, &c.script, c.args)
				}
				reply = p.EvalSha(ctx, shas[protocol.Joint.Name], keys, args...)
			} else {
				c := st.calls[0]
				reply = p.EvalSha(ctx, shas[c.script.Name], []string{c.key}, c.args...)
			}
			published = p.LRange(ctx, "published", 0, -1)
			for n, key := range h.keys {
				keeps[n] = p.LRange(ctx, "kept:"+key, -1, -1)
				p.Del(ctx, "kept:"+key)
				hashes[n] = p.HGetAll(ctx, key)
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, where())
		}

		got := []any{reply.Val()}
		if st.joint {
			got, _ = reply.Val().([]any)
			seen[fmt.Sprint("together ", len(st.calls))]++
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the server answers %q, the reference %q\n%s", got, want, where())
		}
		if got := published.Val(); len(got)+len(flat) > 0 && !reflect.DeepEqual(got, flat) {
			t.Fatalf("the server publishes %q, the reference %q\n%s", got, flat, where())
		}
		for n, key := range h.keys {
			after := model.State(key)
			if got := decode(t, hashes[n].Val()); !reflect.DeepEqual(got, after) {
				t.Fatalf("of %q the server has\n%+v, the reference\n%+v\n%s", key, got, after, where())
			}
			for _, text := range keeps[n].Val() {
				if kept[key], err = strconv.ParseInt(text, 10, 64); err != nil {
					t.Fatalf("%v\n%s", err, where())
				}
			}
			const step = 300_000
			if until := after.Token/1000/step*step + 2*step + protocol.Linger.Milliseconds(); after.Token > 0 && kept[key] < until {
				t.Fatalf("the hash %q is kept until %d, want %d for its token\n%s", key, kept[key], until, where())
			}
			for _, h := range after.Holders {
				if over := h.Expires + protocol.Linger.Milliseconds(); kept[key] < over {
					t.Fatalf("the hash %q is kept until %d, the lease and what lingers until %d\n%s", key, kept[key], over, where())
				}
			}
		}
		for n, c := range st.calls {
			count(t, c.script, got[n], seen)
		}
	}
}

// count notes what a reply said, and that it can be parsed.
func count(t *testing.T, script protocol.Script, reply any, seen map[string]int) {
	t.Helper()
	var err error
	switch script.Name {
	case protocol.Acquire.Name:
		var r protocol.AcquireReply
		r, err = protocol.ParseAcquire(reply)
		seen["acquire "+r.Status.String()]++
		if r.More {
			seen["more"]++
		}
	case protocol.End.Name:
		var r protocol.EndReply
		r, err = protocol.ParseEnd(reply)
		seen["end "+r.Status.String()]++
		seen["end next "+r.Next.String()]++
		if r.More {
			seen["more"]++
		}
	case protocol.Renew.Name:
		var r protocol.RenewReply
		r, err = protocol.ParseRenew(reply)
		seen["renew "+r.Status.String()]++
	case protocol.Inspect.Name:
		var r protocol.InspectReply
		r, err = protocol.ParseInspect(reply)
		seen[fmt.Sprint("held by ", len(r.Holders))]++
	case protocol.Oust.Name:
		var r protocol.OustReply
		r, err = protocol.ParseOust(reply)
		seen[fmt.Sprint("oust ", r.Ended)]++
	}
	if err != nil {
		t.Fatalf("%s: %v", script.Name, err)
	}
}
