package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// lag is how long a request takes to its node, and its reply back. A lost request is never
// executed.
type lag struct {
	to, back time.Duration
	lost     bool
}

// laggingNode executes the nth request of each operation after its lag, and others at once.
type laggingNode struct {
	*model
	lags map[operation][]lag
}

func (n *laggingNode) run(ctx context.Context, cmds []command) []reply {
	op, l := cmds[0].op, lag{}
	n.mu.Lock()
	if left := n.lags[op]; len(left) > 0 {
		l, n.lags[op] = left[0], left[1:]
	}
	n.mu.Unlock()
	if !l.lost && kit.Sleep(ctx, l.to) {
		if rs := n.model.run(ctx, cmds); kit.Sleep(ctx, l.back) {
			return rs
		}
	}
	<-ctx.Done()
	return slices.Repeat([]reply{{err: ctx.Err()}}, len(cmds))
}

// lag sets the lags of requests from now on.
func (n *laggingNode) lag(lags map[operation][]lag) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lags = lags
}

// openLagging opens a session on three such nodes. Those without a model get one.
func openLagging(t *testing.T, nodes []*laggingNode) *peer {
	var ws []wire
	for i, n := range nodes {
		if n.model == nil {
			n.model = newModel(fmt.Sprint("node ", i))
		}
		ws = append(ws, n)
	}
	return open(t, newDriver(make([]string, len(nodes)), func(time.Duration) ([]wire, error) { return ws, nil }, nil))
}

// TestNodeThatSaysTwiceThatItHasAcceptedCountsOnce shows node 0's acceptance of a token twice: by
// the answer to a vote that was under way, and by that to the proposal. Node 1 accepts the token
// late, and never hears of a second one. Node 0 votes before the others have denied theirs, or it
// would not be asked again beside the proposal.
func TestNodeThatSaysTwiceThatItHasAcceptedCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		nodes := []*laggingNode{
			{lags: map[operation][]lag{opVote: {{}, {to: 7 * ms}}, opAccept: {{back: 10 * ms}}}},
			{lags: map[operation][]lag{opVote: {{back: ms / 10}, {to: 5 * ms}}, opAccept: {{back: 60 * ms}, {lost: true}}}},
			{lags: map[operation][]lag{opVote: {{back: ms / 10}}}},
		}
		other := driver.ID{Key: "k", Owner: newOwner()}
		for i, n := range nodes {
			n.model = newModel(fmt.Sprint("node ", i))
			n.logic = true
			if i > 0 {
				n.execute(&command{op: opVote, key: "k", owner: other.Owner, ttl: time.Minute, token: 5})
			}
		}
		p := openLagging(t, nodes)
		time.AfterFunc(ms, func() { nodes[1].execute(&command{op: opEnd, key: "k", owner: other.Owner}) })
		r := request("k", time.Minute)
		r.Wait = true
		g, err := p.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		accepted := 0
		for _, n := range nodes {
			if a := n.execute(&command{op: opInspect, key: "k"}); a.holder == r.Owner && a.accepted == g.Token {
				accepted++
			}
		}
		if accepted < 2 {
			t.Errorf("token %d was granted, which %d of 3 nodes have accepted", g.Token, accepted)
		}
		if len(nodes[0].lags[opVote])+len(nodes[0].lags[opAccept]) > 0 {
			t.Error("node 0 has answered no vote beside the proposal, so that nothing is tested")
		}
		p.drop(g)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestVotesWithoutATokenAreNoHolder inspects a key that was held before, in the middle of an
// acquisition.
func TestVotesWithoutATokenAreNoHolder(t *testing.T) {
	ls := newLines(3)
	p := open(t, ls.driver(false))
	p.drop(p.take("k", time.Minute))
	other := newOwner()
	eventually(t, "the end at all nodes", func() bool { return !slices.ContainsFunc(ls.nodes, func(m *model) bool { return m.held("k") }) })
	for i, n := range ls.nodes {
		n.execute(&command{op: opVote, key: "k", owner: other, ttl: time.Minute})
		if st, err := p.Inspect(t.Context(), "k"); err != nil || st.Held || len(st.Holders) > 0 {
			t.Errorf("%d nodes have voted: %+v, %v", i+1, st, err)
		}
	}
	n := ls.nodes[0]
	token := n.execute(&command{op: opInspect, key: "k"}).token + 1
	n.execute(&command{op: opAccept, key: "k", owner: other, ttl: time.Minute, token: token})
	if st, err := p.Inspect(t.Context(), "k"); err != nil || !st.Held || len(st.Holders) != 1 || st.Holders[0].Token != token {
		t.Errorf("one node has accepted a token, so that others may have: %+v, %v", st, err)
	}
}

// TestLateVoteDoesNotEndALeaseThatItsOwnerAsksForAgain answers the first request at node 2 while the
// second is under way.
func TestLateVoteDoesNotEndALeaseThatItsOwnerAsksForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		slow := map[operation][]lag{opVote: {{}, {back: 50 * ms}}}
		nodes := []*laggingNode{{lags: maps.Clone(slow)}, {lags: maps.Clone(slow)}, {lags: map[operation][]lag{opVote: {{back: 30 * ms}}}}}
		p := openLagging(t, nodes)
		r := request("k", time.Minute)
		first, err := p.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * ms)
		again, err := p.Acquire(t.Context(), r)
		if err != nil || again.Token != first.Token {
			t.Fatalf("token %d, %v; want %d", again.Token, err, first.Token)
		}
		time.Sleep(time.Second)
		for i, n := range nodes {
			if !n.held("k") {
				t.Errorf("node %d has no vote of a lease that lasts for a minute", i)
			}
		}
		p.drop(again)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLeaseThatIsOustedWhileItIsGrantedIsNotGranted ousts a lease when the nodes have accepted its
// token, and before they have said so.
func TestLeaseThatIsOustedWhileItIsGrantedIsNotGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		late := func() map[operation][]lag { return map[operation][]lag{opAccept: {{back: 100 * ms}}} }
		nodes := []*laggingNode{{lags: late()}, {lags: late()}, {lags: late()}}
		p := openLagging(t, nodes)
		done := make(chan error, 1)
		go func() {
			_, err := p.try("k", time.Minute)
			done <- err
		}()
		time.Sleep(50 * ms)
		other := openLagging(t, nodes)
		st, err := other.Inspect(t.Context(), "k")
		if err != nil || !st.Held {
			t.Fatalf("the key is %+v, %v", st, err)
		}
		if err := other.Oust(t.Context(), "k", st.Token); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, driver.ErrPlaceLost) {
			t.Errorf("a lease that was ousted is granted: %v", err)
		}
		other.drop(other.take("k", time.Minute))
		for _, p := range []*peer{p, other} {
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestTokenIsLargerThanThoseOfVotersWhateverTheClocksShow asks nodes whose clocks stand still.
func TestTokenIsLargerThanThoseOfVotersWhateverTheClocksShow(t *testing.T) {
	const accepted = 1 << 40
	ls := newLines(3)
	for _, n := range ls.nodes {
		n.logic = true
		owner := newOwner()
		n.execute(&command{op: opVote, key: "k", owner: owner, ttl: time.Minute})
		n.execute(&command{op: opAccept, key: "k", owner: owner, ttl: time.Minute, token: accepted})
		n.execute(&command{op: opEnd, key: "k", owner: owner})
	}
	p := open(t, ls.driver(false))
	g, err := p.try("k", time.Minute)
	if err != nil || g.Token <= accepted {
		t.Fatalf("of 3 nodes: token %d is granted after token %d, %v", g.Token, int64(accepted), err)
	}
	p.drop(g)
}
