package redlock

import (
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestScriptsDoWhatTheModelDoes runs random histories of two keys at a real node, by a
// clock of the test's that also leaps and steps back, and at the model by which the
// simulation proves the protocol. It compares every answer, all that the node knows, and
// the messages after every step. It does 4,500 steps, 1,500 with -short, or as many as
// LOCKAROUND_COUNTS says.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	const each = 150
	total := counts.Of(t, "steps", counts.Short(1500, 4_500), 100_000)
	n := newClockedNode(t, testservers.Redis(t))
	seen := make(map[string]int)
	for seed := range uint64(total+each-1) / each {
		compareWithModel(t, n, seed, each, seen)
	}
	seen["brief vote"] = n.brief
	t.Log(seen)
	for _, what := range []string{
		"vote granted", "vote denied", "vote over", "vote out", "accept granted", "accept denied", "accept over",
		"renew granted", "renew lost", "end ended", "end withdrawn", "end notmine", "end absent", "oust ended", "oust absent",
		"push f", "push w", "push l", "kept", "2 wait",
		"vote with a token", "brief vote", "yield of a token", "vote behind a traced one", "inspect behind a traced one",
	} {
		if seen[what] == 0 {
			t.Errorf("no history contained %q", what)
		}
	}
}

// compareWithModel runs one history.
func compareWithModel(t *testing.T, n *clockedNode, seed uint64, steps int, seen map[string]int) {
	t.Helper()
	rng := mathrand.New(mathrand.NewPCG(seed, 3))
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
		if rng.IntN(4) == 0 {
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
			at = at.Add(ms(1000, 8000, 40_000, 400_000, 2_000_000))
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
		if r := m.keys[c.key]; r != nil && r.taken && !r.kept && (c.op == opEnd || c.op == opRenew) && rng.IntN(2) == 0 {
			c.owner = r.owner
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
			if rng.IntN(2) == 0 {
				c.trace = &driver.Trace{Flags: 1}
				binary.BigEndian.PutUint64(c.trace.TraceID[:], rng.Uint64())
				binary.BigEndian.PutUint64(c.trace.SpanID[:], rng.Uint64())
			}
			if rng.IntN(4) == 0 {
				c.restartDelay = ms(1000, 10_000)
			}
			if rng.IntN(2) == 0 {
				tokens = max(tokens, at.UnixMicro()-rng.Int64N([]int64{1_000_000, 3_600_000_000}[rng.IntN(2)]))
				c.token = tokens + int64(rng.IntN(3)) - 1
			}
		case opAccept, opRenew, opYield:
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
		had := m.knows(c.key).accepted
		if c.op == opYield && rng.IntN(2) == 0 {
			c.token = had
		}
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
		if c.op == opVote && got.accepted > 0 && got.accepted == c.token {
			seen["vote with a token"]++
		}
		if c.op == opYield && had > 0 && m.knows(c.key).accepted == 0 {
			seen["yield of a token"]++
		}
		if got.kept {
			seen["kept"]++
		}
		if got.taker.trace != "" {
			seen[string(c.op)+" behind a traced one"]++
		}
		if len(got.queue) > 0 {
			seen[fmt.Sprint(len(got.queue), " wait")]++
		}
		for i := 1; i < len(told); i += 2 {
			seen["push "+told[i][:1]]++
		}
	}
}
