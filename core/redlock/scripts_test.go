package redlock

import (
	"cmp"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

// TestScriptsDoWhatTheModelDoes runs random histories of two keys at a real node, by a
// clock of the test's that also leaps and steps back, and at the model by which the
// simulation proves the protocol. It compares every answer, all that the node knows, and
// the messages after every step. LOCKAROUND_PROTOCOL_STEPS says how many steps.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	const each = 150
	total := 4_500
	if text := os.Getenv("LOCKAROUND_PROTOCOL_STEPS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("LOCKAROUND_PROTOCOL_STEPS: %v", err)
		}
		total = n
	}
	server := redistest.Start(t)
	n := &clockedNode{client: newClient(t, server.Addr()), shas: make(map[operation]string)}
	for op, s := range scripts {
		const time, publish = "redis.call('TIME')", "redis.pcall('PUBLISH', "
		if op == opProbe {
			continue
		}
		if strings.Count(s.source, time) != 1 || strings.Count(s.source, "'PUBLISH'") != strings.Count(s.source, publish) {
			t.Fatalf("the script %s does not read the time once, or publishes in another way", op)
		}
		source := strings.Replace(s.source, time, "redis.call('LRANGE', 'clock', 0, 1)", 1)
		source = strings.ReplaceAll(source, publish, "redis.call('RPUSH', 'published', ")
		sha, err := n.client.ScriptLoad(t.Context(), source).Result()
		if err != nil {
			t.Fatal(err)
		}
		n.shas[op] = sha
	}
	seen := make(map[string]int)
	for seed := range uint64(total+each-1) / each {
		compareWithModel(t, n, seed, each, seen)
	}
	t.Log(seen)
	for _, what := range []string{
		"vote granted", "vote denied", "vote over", "vote out", "accept granted", "accept denied", "accept over",
		"renew granted", "renew lost", "end ended", "end withdrawn", "end notmine", "end absent", "oust ended", "oust absent",
		"push f", "push w", "push l", "kept", "2 wait",
	} {
		if seen[what] == 0 {
			t.Errorf("no history contained %q", what)
		}
	}
}

// compareWithModel runs one history.
func compareWithModel(t *testing.T, n *clockedNode, seed uint64, steps int, seen map[string]int) {
	t.Helper()
	rng := mathrand.New(mathrand.NewPCG(seed, 3)) //nolint:gosec // a schedule, no secret
	ms := func(of ...int) time.Duration { return time.Duration(of[rng.IntN(len(of))]) * time.Millisecond }
	at := time.UnixMilli(1_700_000_000_000)
	m := newModel("model")
	m.clock = func() time.Time { return at }
	var told []string
	hear := func(channel string) {
		m.subs[channel] = map[*subscription]bool{{func(payload string) { told = append(told, channel, payload) }}: true}
	}
	keys := []string{"k", "other"}
	owners := []driver.Owner{newOwner(), newOwner(), newOwner(), newOwner()}
	owner := func() driver.Owner {
		if rng.IntN(8) == 0 {
			owners[rng.IntN(len(owners))] = newOwner()
		}
		return owners[rng.IntN(len(owners))]
	}
	n.flush(t)
	var tokens, tickets int64
	for step := range steps {
		switch x := rng.Float64(); {
		case x < 0.03:
			at = at.Add(-ms(1, 100, 1000, 8000, 40_000))
		case x < 0.06:
			at = at.Add(ms(1000, 8000, 40_000))
		case x < 0.8:
			at = at.Add(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
		if rng.IntN(300) == 0 {
			m.wipe()
			n.flush(t)
		}
		c := command{
			op:    []operation{opVote, opVote, opVote, opAccept, opAccept, opYield, opRenew, opEnd, opOust, opInspect}[rng.IntN(10)],
			key:   keys[rng.IntN(5)/4],
			owner: owner(), ttl: ms(10, 300, 3000, 30_000), placeTTL: ms(300, 1000, 3000), wait: rng.IntN(2) == 0, create: rng.IntN(4) == 0,
		}
		c.channel = "lr1:" + strconv.Itoa(int(c.owner[0])%3)
		hear(c.channel)
		switch c.op {
		case opVote:
			if c.wait && rng.IntN(2) == 0 {
				tickets += int64(rng.IntN(3))
				c.ticket = max(1, tickets+1-int64(rng.IntN(4)))
			}
			if rng.IntN(6) == 0 {
				old := owner()
				c.old = &old
			}
			if rng.IntN(4) == 0 {
				c.restartDelay = ms(1000, 10_000)
			}
		case opAccept, opRenew:
			tokens += int64(rng.IntN(3))
			c.token = max(1, tokens-int64(rng.IntN(2)))
		case opInspect:
			c.owner = driver.Owner{}
		case opOust:
			c.owner = driver.Owner{}
			c.token = max(0, tokens-2)
		case opEnd:
			if rng.IntN(3) == 0 {
				c.keep = ms(100, 3000, 30_000)
			}
		}
		told = nil
		want := m.execute(&c)
		got, messages := n.execute(t, at, &c)
		if want.since.IsZero() {
			want.since = time.UnixMilli(0)
		}
		if c.op != opInspect {
			want.since, want.kept = got.since, got.kept
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, step %d, %+v:\nthe node says %+v\nthe model     %+v", seed, step, c, got, want)
		}
		if !slices.Equal(messages, told) {
			t.Fatalf("seed %d, step %d, %+v:\nthe node tells %q\nthe model      %q", seed, step, c, messages, told)
		}
		for _, key := range keys {
			if got, want := n.knows(t, key), m.knows(key); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, step %d, %+v, %s:\nthe node knows %+v\nthe model      %+v", seed, step, c, key, got, want)
			}
		}
		seen[string(c.op)+" "+string(got.status)]++
		if got.kept {
			seen["kept"]++
		}
		if len(got.queue) > 0 {
			seen[fmt.Sprint(len(got.queue), " wait")]++
		}
		for i := 1; i < len(told); i += 2 {
			seen["push "+told[i][:1]]++
		}
	}
}

// knowledge is all that a node keeps of a key. Times are in ms.
type knowledge struct {
	holder, channel       string // "-": the key is kept for nobody
	expires, length       int64
	accepted, since       int64
	token, ticket, ousted int64
	ended                 string
	queue                 []knownPlace
}

type knownPlace struct {
	owner, channel        string
	ticket, limit, length int64
}

func (m *model) knows(key string) (k knowledge) {
	r := m.keys[key]
	if r == nil {
		return k
	}
	ms := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	k = knowledge{
		channel: r.channel, expires: ms(r.expires), length: r.length.Milliseconds(), accepted: r.accepted, since: ms(r.since),
		token: r.token, ticket: r.ticket, ousted: r.ousted,
	}
	switch {
	case r.kept:
		k.holder = "-"
	case r.taken:
		k.holder = string(r.owner[:])
	}
	for _, o := range r.ended {
		k.ended += string(o[:])
	}
	for _, e := range r.queue {
		k.queue = append(k.queue, knownPlace{string(e.owner[:]), e.channel, e.ticket, ms(e.limit), e.length.Milliseconds()})
	}
	return k
}

// clockedNode is a real node whose scripts take the time from the test and leave their
// messages to it.
type clockedNode struct {
	client *redis.Client
	shas   map[operation]string
}

func (n *clockedNode) flush(t *testing.T) {
	t.Helper()
	if err := n.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func (n *clockedNode) execute(t *testing.T, at time.Time, c *command) (answer, []string) {
	t.Helper()
	ctx := t.Context()
	var said *redis.Cmd
	var published *redis.StringSliceCmd
	_, err := n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, "clock", "published")
		p.RPush(ctx, "clock", at.Unix(), at.Nanosecond()/1000)
		said = p.Do(ctx, append([]any{"EVALSHA", n.shas[c.op]}, c.arguments()...)...)
		published = p.LRange(ctx, "published", 0, -1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := parseAnswer(c.op, said.Val())
	if err != nil {
		t.Fatal(err)
	}
	return a, published.Val()
}

func (n *clockedNode) knows(t *testing.T, key string) (k knowledge) {
	t.Helper()
	ctx := t.Context()
	var hash *redis.MapStringStringCmd
	var queue *redis.ZSliceCmd
	_, err := n.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		hash, queue = p.HGetAll(ctx, hashPrefix+key), p.ZRangeWithScores(ctx, queuePrefix+key, 0, -1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h := hash.Val()
	number := func(text string) int64 {
		v, err := strconv.ParseInt(cmp.Or(text, "0"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	k = knowledge{
		holder: h["o"], channel: h["p"], expires: number(h["x"]), length: number(h["l"]), accepted: number(h["a"]), since: number(h["g"]),
		token: number(h["t"]), ticket: number(h["n"]), ousted: number(h["u"]), ended: h["z"],
	}
	places := 0
	for _, z := range queue.Val() {
		owner, _ := z.Member.(string)
		parts := strings.SplitN(h["e"+owner], ":", 3)
		if len(parts) != 3 {
			t.Fatalf("the place of %q is %q", owner, parts)
		}
		k.queue = append(k.queue, knownPlace{owner, parts[2], int64(z.Score), number(parts[0]), number(parts[1])})
		places++
	}
	for name := range h {
		if len(name) > 1 {
			places--
		}
	}
	if places != 0 {
		t.Fatalf("%d places are outside of the queue", -places)
	}
	return k
}

func words(ws ...string) []any {
	out := make([]any, len(ws))
	for i, w := range ws {
		out[i] = w
	}
	return out
}

func TestMalformedRepliesAreRefused(t *testing.T) {
	good := []string{"granted", "1", "2", "3", "4", "5", "6", "1", "0", "7", "8"}
	if a, err := parseAnswer(opVote, words(good...)); err != nil || a.status != statusGranted || a.left != 5*time.Millisecond || !a.first || a.firm || a.boot != 8 {
		t.Errorf("a vote's reply: %+v, %v", a, err)
	}
	owner := string(make([]byte, 16))
	if a, err := parseAnswer(opInspect, append(words(good...), words(owner, "9", "10", "0", owner+owner)...)); err != nil || !a.held || len(a.queue) != 2 || a.accepted != 9 {
		t.Errorf("an inspection's reply: %+v, %v", a, err)
	}
	for name, value := range map[string]any{
		"nil":                 nil,
		"a number":            int64(1),
		"an empty list":       []any{},
		"too short":           words(good[:10]...),
		"too long":            words(append(good, "9")...),
		"a number among them": append(words(good[:10]...), int64(1)),
		"a negative number":   words("granted", "-1", "2", "3", "4", "5", "6", "1", "0", "7", "8"),
		"2^53":                words("granted", "9007199254740992", "2", "3", "4", "5", "6", "1", "0", "7", "8"),
		"a word":              words("granted", "x", "2", "3", "4", "5", "6", "1", "0", "7", "8"),
	} {
		if _, err := parseAnswer(opVote, value); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range map[string][]any{
		"a short owner":   append(words(good...), words("abc", "9", "10", "0", "")...),
		"a short in line": append(words(good...), words("", "9", "10", "0", owner+"x")...),
	} {
		if _, err := parseAnswer(opInspect, value); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseAnswer(opProbe, words("hset")); !errors.Is(err, errMalformed) {
		t.Errorf("a probe's reply with half a pair: %v", err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add("granted", "1", "16", "abc", uint8(11))
	f.Add("", "-1", "9007199254740993", "", uint8(16))
	f.Fuzz(func(t *testing.T, a, b, c, d string, n uint8) {
		var list []any
		for i := range int(n % 20) {
			list = append(list, []string{a, b, c, d}[i%4])
		}
		for _, op := range []operation{opVote, opInspect, opProbe} {
			got, err := parseAnswer(op, list)
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
