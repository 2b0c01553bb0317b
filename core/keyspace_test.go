package core_test

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// keyspaces are templates whose keys are compared with each other. Those that begin with
// a kind of their own are one space: no value can make one of them look like another.
// Templates that begin with a value have no such kind, so each is a space by itself.
var keyspaces = [][]string{
	{
		"one:{a}", "two:{a}:{b}", "three:{a}:{b}:{c}", "slash/{a}/{b}", "tail:{a}:", "mixed:{a}/-{b}", "escaped:{a}%3A:{b}",
		"spaced:{a} {b}", "back:{b}:{a}", "twice:{a}:{a}:{b}", "é:{a}é{b}", "hash:{a}:%~{b}",
	},
	{"{a}:{b}"},
	{"{a}:-{b}"},
	{"{a}/{b}/{c}"},
	{"{a}"},
}

// values is what a template's {a}, {b} and {c} stand for.
type values [3]string

// elements resolves {a}, {b} and {c}.
func elements(name string) (core.Accessor[values], error) {
	n := int(name[0] - 'a')
	return func(dst []byte, src values) ([]byte, error) { return append(dst, src[n]...), nil }, nil
}

// guise makes values that might be taken for others: of few characters, which separate
// and escape, rendered already, the same up to where they are cut, or shifted from one
// placeholder to the next.
type guise struct{ *rand.Rand }

func (g guise) of(alphabet []string, most int) string {
	var b strings.Builder
	for range g.IntN(most + 1) {
		b.WriteString(alphabet[g.IntN(len(alphabet))])
	}
	return b.String()
}

var (
	awkward = []string{":", "/", "%", "~", "-", ".", "_", " ", "3", "A", "a", "%3A", "%~", "{", "}", "\x00", "\xff", "\xc3", "é", "\u212a", "ſ", "\U0001f512"}
	shared  = strings.Repeat("0123456789", 30)
)

func (g guise) value() string {
	switch g.IntN(8) {
	case 0:
		return strconv.Itoa(g.IntN(1_000_000))
	case 1, 2:
		return g.of(awkward, 8)
	case 3:
		return core.Escape(g.of(awkward, 8))
	case 4: // near the lengths at which the end becomes a hash
		return shared[:130+g.IntN(80)] + g.of(awkward, 3)
	case 5:
		return core.Escape(shared[:190+g.IntN(20)] + strconv.Itoa(g.IntN(1000)))
	case 6:
		b := make([]byte, 1+g.IntN(12))
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		return string(b)
	default:
		return strings.Repeat(awkward[g.IntN(len(awkward))], g.IntN(80)) + strconv.Itoa(g.IntN(1000))
	}
}

func (g guise) values() (v values) {
	for i := range v {
		v[i] = g.value()
	}
	if g.IntN(3) == 0 { // the same bytes, separated elsewhere
		all := strings.Join(v[:2], ":")
		at := g.IntN(len(all) + 1)
		v[0], v[1] = all[:at], strings.TrimPrefix(all[at:], ":")
	}
	return v
}

// printed is what is kept of a key and of what made it: the same print of two keys is
// looked into, and two different keys are taken for one never.
type printed struct{ key, from uint64 }

// keyprints renders keys and prints them.
type keyprints struct {
	seed    maphash.Seed
	space   []int
	texts   []string
	names   []int // how many of the values the template uses
	renders []func(values) (string, error)
}

// key is the n-th key of all, with what made it. It is not ok if a value is empty.
func (k *keyprints) key(t *testing.T, n int) (key, from string, ok bool) {
	g := guise{rand.New(rand.NewPCG(uint64(n), 20))}
	at := g.IntN(len(k.texts))
	v := g.values()
	rendered, err := k.renders[at](v)
	empty := false
	var b strings.Builder
	b.WriteString(k.texts[at])
	for _, s := range v[:k.names[at]] {
		empty = empty || s == ""
		b.WriteByte(0)
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(0)
		b.WriteString(s)
	}
	if empty != errors.Is(err, core.ErrKey) || !empty && err != nil {
		t.Errorf("%q of %q: %v", k.texts[at], v, err)
		return "", "", false
	}
	return strconv.Itoa(k.space[at]) + " " + rendered, b.String(), !empty
}

// TestFuzzedKeysStayApart renders 100,000 keys, ten million if full counts
// are asked for, of values that differ, and finds no key twice.
func TestFuzzedKeysStayApart(t *testing.T) {
	if testing.Short() {
		t.Skip("tries many keys")
	}
	total := 100_000
	if counts.Full(t) {
		total = 10_000_000
	}
	k := &keyprints{seed: maphash.MakeSeed()}
	for space, texts := range keyspaces {
		for _, text := range texts {
			render, err := core.NewKey(text, elements)
			if err != nil {
				t.Fatal(err)
			}
			used := 0
			for i, name := range []string{"{a}", "{b}", "{c}"} {
				if strings.Contains(text, name) {
					used = i + 1
				}
			}
			k.space, k.texts, k.names, k.renders = append(k.space, space), append(k.texts, text), append(k.names, used), append(k.renders, render)
		}
	}

	var all []printed
	rendered := 0
	for len(all) < total {
		more := total - len(all) + total/50
		all = append(all, k.prints(t, rendered, rendered+more)...)
		rendered += more
		slices.SortFunc(all, func(a, b printed) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.from, b.from)) })
		all = slices.Compact(all)
	}
	suspects := make(map[uint64]bool)
	for i := 1; i < len(all); i++ {
		if all[i].key == all[i-1].key {
			suspects[all[i].key] = true
		}
	}
	collisions := 0
	if len(suspects) > 0 {
		collisions = k.collisions(t, suspects, rendered)
	}
	t.Attr("figure-20", fmt.Sprintf("%s keys of %d templates: %d collisions", thousands(len(all)), len(k.texts), collisions))
}

// prints renders the keys from the first number up to the last, and leaves out those of
// which a value is empty.
func (k *keyprints) prints(t *testing.T, first, last int) (all []printed) {
	t.Helper()
	var mu sync.Mutex
	var workers sync.WaitGroup
	each := (last - first) / runtime.GOMAXPROCS(0)
	for at := first; at < last; at += each + 1 {
		workers.Go(func() {
			some := make([]printed, 0, each+1)
			for n := at; n < min(at+each+1, last); n++ {
				if key, from, ok := k.key(t, n); ok {
					some = append(some, printed{maphash.String(k.seed, key), maphash.String(k.seed, from)})
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, some...)
		})
	}
	workers.Wait()
	return all
}

// collisions renders all keys again and counts those of the suspects that different
// values have made.
func (k *keyprints) collisions(t *testing.T, suspects map[uint64]bool, last int) (n int) {
	t.Helper()
	made := make(map[string]string)
	for i := range last {
		key, from, ok := k.key(t, i)
		if !ok || !suspects[maphash.String(k.seed, key)] {
			continue
		}
		if other, ok := made[key]; !ok {
			made[key] = from
		} else if other != from {
			n++
			t.Errorf("%q and %q both make %q", other, from, key)
		}
	}
	return n
}

// thousands writes a number with commas.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
