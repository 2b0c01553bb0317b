package redlock

import (
	"context"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

// TestScriptsDoWhatTheModelDoes sends the same random requests to a real node and to
// the model by which the simulation proves the protocol.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	real := newNode(newClient(t, server.Addr()), 10*time.Second)
	for seed := range uint64(30) {
		rng := mathrand.New(mathrand.NewPCG(seed, 3)) //nolint:gosec // a schedule, no secret
		m := newModel("model")
		if err := real.client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		owners := []driver.Owner{newOwner(), newOwner(), newOwner(), newOwner()}
		var tokens, tickets int64
		for step := range 150 {
			owner := func() driver.Owner {
				if rng.IntN(40) == 0 {
					owners[rng.IntN(len(owners))] = newOwner()
				}
				return owners[rng.IntN(len(owners))]
			}
			c := command{
				op:    []operation{opVote, opVote, opVote, opAccept, opAccept, opYield, opRenew, opEnd, opOust, opInspect}[rng.IntN(10)],
				key:   "k",
				owner: owner(), channel: "lr1:c", ttl: time.Hour, place: time.Hour, wait: rng.IntN(2) == 0, create: rng.IntN(4) == 0,
			}
			switch c.op {
			case opVote:
				if c.wait && rng.IntN(2) == 0 {
					tickets += int64(rng.IntN(3))
					c.ticket = tickets + 1
				}
				if rng.IntN(6) == 0 {
					old := owner()
					c.old = &old
				}
			case opAccept:
				tokens += int64(rng.IntN(3))
				c.token = max(1, tokens-int64(rng.IntN(2)))
			case opInspect:
				c.owner = driver.Owner{}
			case opOust:
				c.owner = driver.Owner{}
				c.token = max(0, tokens-2)
			case opEnd:
				if rng.IntN(5) == 0 {
					c.keep = 2 * time.Hour
				}
			}
			want := m.execute(&c)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			r := real.run(ctx, []command{c})[0]
			cancel()
			if r.err != nil {
				t.Fatalf("seed %d, step %d, %s: %v", seed, step, c.op, r.err)
			}
			if !alike(&r.answer, &want) {
				t.Fatalf("seed %d, step %d, %+v:\nthe node says %+v\nthe model     %+v", seed, step, c, r.answer, want)
			}
		}
	}
}

// alike compares answers, but for what depends on the moment.
func alike(a, b *answer) bool {
	if len(a.queue) != len(b.queue) {
		return false
	}
	for i := range a.queue {
		if a.queue[i] != b.queue[i] {
			return false
		}
	}
	return a.status == b.status && a.accepted == b.accepted && a.token == b.token && a.ticket == b.ticket &&
		math.Abs(float64(a.left-b.left)) < float64(time.Minute) && a.waiting == b.waiting && a.first == b.first &&
		a.firm == b.firm && a.ousted == b.ousted && a.holder == b.holder && a.held == b.held && a.kept == b.kept
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
