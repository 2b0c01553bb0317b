package zklock_test

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/zklock"
)

// TestTheFirstOfAKeyIsGrantedByTheRequestThatMakesItsNode compares the grant with what others
// read of it.
func TestTheFirstOfAKeyIsGrantedByTheRequestThatMakesItsNode(t *testing.T) {
	t.Parallel()
	_, _, a, d := pair(t)
	b := open(t, d)
	var last int64
	for range 20 {
		for _, p := range []*process{a, b} {
			g := p.take("k", hold)
			if g.Token <= last {
				t.Fatalf("token %d came after %d", g.Token, last)
			}
			last = g.Token
			st := b.state("k")
			if len(st.Holders) != 1 || st.Holders[0].Token != g.Token || st.Holders[0].Remaining < hold/2 {
				t.Fatalf("a lease with token %d for %v is shown as %+v", g.Token, hold, st)
			}
			p.drop(g)
		}
	}
}

// TestWhoTookAKeyForFreeStepsBack reads the nodes of a holder and of one that came after it. The
// second has not heard of the key before, and takes it for free.
func TestWhoTookAKeyForFreeStepsBack(t *testing.T) {
	t.Parallel()
	s, _, a, d := pair(t)
	b := open(t, d)
	conn := raw(t, s)
	g := a.take("k", hold)
	w := b.queue("k", hold)
	await(t, "news of the waiter", a.told(a.contended, g.ID))
	names, _, err := conn.Children(zklock.DefaultRoot + "/=k")
	if err != nil || len(names) != 2 {
		t.Fatalf("the key has the nodes %q, %v; want two", names, err)
	}
	said := make(map[string]int)
	for _, name := range names {
		data, _, err := conn.Get(zklock.DefaultRoot + "/=k/" + name)
		if err != nil {
			t.Fatal(err)
		}
		said[strings.Fields(string(data))[0]]++
	}
	if said["granted"] != 1 || said["waiting"] != 1 {
		t.Errorf("the nodes say %v; want one that is granted, and one that waits", said)
	}
	a.drop(g)
	next := granted(t, "the hand-over", w)
	if next.Token <= g.Token {
		t.Errorf("token %d came after %d", next.Token, g.Token)
	}
	b.drop(next)
}
