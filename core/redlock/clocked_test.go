package redlock

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
)

// knowledge is all that a node keeps of a key. Times are in ms.
type knowledge struct {
	holder, channel       string // "-": the key is kept for nobody
	expires, length       int64
	accepted, since       int64
	token, ticket, ousted int64
	ended, traced         string
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
		token: r.token, ticket: r.ticket, ousted: r.ousted, traced: r.traced,
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
	brief  int // votes that were answered by the fast path
}

func newClockedNode(t *testing.T, server *testservers.Server) *clockedNode {
	t.Helper()
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
	return n
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
	a, err := parseAnswer(c, said.Val())
	if err != nil {
		t.Fatal(err)
	}
	if list, ok := said.Val().([]any); ok && len(list) == 3 {
		n.brief++
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
		token: number(h["t"]), ticket: number(h["n"]), ousted: number(h["u"]), ended: h["z"], traced: h["d"],
	}
	if k.holder == "" {
		k.channel, k.accepted, k.since = "", 0, 0 // they do not count
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
