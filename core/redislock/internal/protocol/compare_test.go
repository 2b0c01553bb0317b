package protocol_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol/reference"
)

// TestScriptsFollowTheReference runs random histories of a few keys against a real
// server and the reference, by a clock of the test's that also leaps and steps back, and
// compares every reply, all that is known of all keys, and the messages after every step.
// It does 22,000 steps, 1,500 with -short, or as many as LOCKAROUND_COUNTS says.
func TestScriptsFollowTheReference(t *testing.T) {
	const each = 250
	total := counts.Of(t, "steps", counts.Short(1500, 22_000), 100_000)
	s := start(t)
	shas := make(map[string]string)
	for _, script := range append(protocol.Scripts(), protocol.Script{Name: "dump", Source: dump}) {
		sha, err := s.rdb.ScriptLoad(context.Background(), withClock(script.Source)).Result()
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
		"acquire granted", "acquire queued", "acquire busy", "acquire full", "acquire over",
		"end ended", "end withdrawn", "end notmine", "end absent", "more",
		"end next granted", "end next queued", "end next over", "renew ok", "renew lost", "push g", "push w", "push l",
		"oust 0", "oust 1", "oust 3", "held by 0", "held by 1", "held by 2", "held by 5",
		"acquire busy behind a traced one", "acquire queued behind a traced one", "end next queued behind a traced one", "held by a traced one",
		"take granted", "take taken", "thin", "fat", "free with buried owners",
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
	for _, key := range h.keys { // an earlier history may have drawn from the same stream
		s.do("DEL", "last:"+protocol.Stream(key))
	}
	for i := range steps {
		st := h.next()
		at = st.at
		if st.flush {
			model.Flush()
		}
		where := func() string {
			text := fmt.Sprintf("profile %s, seed %d, step %d", h.name, seed, i)
			for _, d := range done[max(0, i-12):] {
				text += "\n  " + d.String()
			}
			return text
		}

		key := h.key()
		st.call = h.call(key, model.State(key))
		want, messages, err := model.Run(st.script.Name, key, st.args)
		if err != nil {
			t.Fatalf("%v\n%s\n  %s", err, where(), st)
		}
		if st.script.Name == protocol.Take.Name {
			want, err = drawn(model, key, want)
			if err != nil {
				t.Fatal(err)
			}
		}
		var flat []string // channels and what is published there
		for _, m := range messages {
			flat = append(flat, m.Channel, m.Payload)
			seen["push "+m.Payload[:1]]++
			if p, err := protocol.ParsePush(m.Payload); err != nil || p.Key != key {
				t.Fatalf("push %q: %v\n%s", m.Payload, err, where())
			}
		}
		done = append(done, st)

		var reply *redis.Cmd
		var published *redis.StringSliceCmd
		dumps, untils := make([]*redis.Cmd, len(h.keys)), make([]*redis.StringCmd, len(h.keys))
		_, err = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			if st.flush {
				for _, key := range h.keys {
					p.Del(ctx, key, "until:"+key, "last:"+protocol.Stream(key))
				}
			}
			p.Del(ctx, "clock", "published")
			p.RPush(ctx, "clock", at.Unix(), at.Nanosecond()/1000)
			reply = p.EvalSha(ctx, shas[st.script.Name], []string{key, protocol.Stream(key)}, st.args...)
			published = p.LRange(ctx, "published", 0, -1)
			for n, key := range h.keys {
				dumps[n] = p.EvalSha(ctx, shas["dump"], []string{key})
				untils[n] = p.Get(ctx, "until:"+key)
			}
			return nil
		})
		if err != nil && err != redis.Nil {
			t.Fatalf("%v\n%s", err, where())
		}
		if reply.Err() != nil && reply.Err() != redis.Nil {
			t.Fatalf("%v\n%s", reply.Err(), where())
		}
		if got := reply.Val(); !reflect.DeepEqual(got, want) {
			t.Fatalf("the server answers %q, the reference %q\n%s", got, want, where())
		}
		if got := published.Val(); len(got)+len(flat) > 0 && !reflect.DeepEqual(got, flat) {
			t.Fatalf("the server publishes %q, the reference %q\n%s", got, flat, where())
		}
		for n, key := range h.keys {
			after := model.State(key)
			if got := decodeAt(t, dumps[n].Val(), at); !reflect.DeepEqual(got, after) {
				t.Fatalf("of %q the server has\n%+v, the reference\n%+v\n%s", key, got, after, where())
			}
			if until := untils[n].Val(); len(after.Holders) > 0 && until != strconv.FormatInt(model.Until(key), 10) {
				t.Fatalf("%q is kept until %s, want %d\n%s", key, until, model.Until(key), where())
			}
			switch {
			case after.Thin:
				seen["thin"]++
			case len(after.Holders) > 0:
				seen["fat"]++
			case len(after.Buried) > 0:
				seen["free with buried owners"]++
			}
		}
		count(t, st.script, reply.Val(), seen)
	}
}

func decodeAt(t *testing.T, dumped any, when time.Time) reference.State {
	t.Helper()
	return at(decode(t, dumped), when)
}

// drawn returns what Take answers if SET has answered so.
func drawn(model *reference.Server, key string, set any) (any, error) {
	if set == int64(0) {
		return nil, nil
	}
	return model.Draw(key, "")
}

// count notes what a reply said, and that it can be parsed.
func count(t *testing.T, script protocol.Script, reply any, seen map[string]int) {
	t.Helper()
	var err error
	switch script.Name {
	case protocol.Take.Name:
		if reply == nil {
			seen["take taken"]++
			return
		}
		seen["take granted"]++
		_, err = protocol.ParseDrawn(reply)
	case protocol.Acquire.Name:
		var r protocol.AcquireReply
		r, err = protocol.ParseAcquire(reply)
		seen["acquire "+r.Status.String()]++
		if r.Taker.Trace != "" {
			seen["acquire "+r.Status.String()+" behind a traced one"]++
		}
		if r.More {
			seen["more"]++
		}
	case protocol.End.Name:
		var r protocol.EndReply
		r, err = protocol.ParseEnd(reply)
		seen["end "+r.Status.String()]++
		seen["end next "+r.Next.String()]++
		if r.Taker.Trace != "" {
			seen["end next "+r.Next.String()+" behind a traced one"]++
		}
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
		if slices.ContainsFunc(r.Holders, func(h protocol.Holder) bool { return h.Taker.Trace != "" }) {
			seen["held by a traced one"]++
		}
	case protocol.Oust.Name:
		var r protocol.OustReply
		r, err = protocol.ParseOust(reply)
		seen[fmt.Sprint("oust ", r.Ended)]++
	}
	if err != nil {
		t.Fatalf("%s: %v", script.Name, err)
	}
}
