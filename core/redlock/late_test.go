package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// gatedWire has votes and ends wait until the test lets them through, each on its own.
type gatedWire struct {
	wire
	votes, ends chan struct{}
	mute        string // the key whose votes have no answer

	mu   sync.Mutex
	done []operation // in the order of their execution
}

func (w *gatedWire) run(ctx context.Context, cmds []command) []reply {
	rs := make([]reply, len(cmds))
	if w.mute != "" && cmds[0].op == opVote && cmds[0].key == w.mute {
		<-ctx.Done()
		return slices.Repeat([]reply{{err: ctx.Err()}}, len(cmds))
	}
	switch cmds[0].op {
	case opVote:
		<-w.votes
	case opEnd:
		<-w.ends
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range cmds {
		w.done = append(w.done, c.op)
		rs[i].status = map[operation]status{opVote: statusGranted, opAccept: statusGranted, opEnd: statusEnded}[c.op]
	}
	return rs
}

func (w *gatedWire) scan(context.Context, string, uint64, int) ([]string, uint64, error) {
	return nil, 0, nil
}

func (w *gatedWire) listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

// openGated opens a session of three such wires.
func openGated(t *testing.T) (driver.Session, []*gatedWire) {
	var all []*gatedWire
	var ws []wire
	for range 3 {
		w := &gatedWire{votes: make(chan struct{}), ends: make(chan struct{})}
		all, ws = append(all, w), append(ws, w)
	}
	d := newDriver([]string{"a", "b", "c"}, func(time.Duration) ([]wire, error) { return ws, nil }, nil)
	s, err := d.Open(driver.Config{Sink: noting{}, StoreTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s, all
}

func TestNodeIsToldOfTheEndOnceItHasVoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all := openGated(t)
		for i, w := range all {
			close(w.ends)
			if i > 0 {
				close(w.votes)
			}
		}
		g, err := s.Acquire(t.Context(), request("k", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
			t.Error("not ended by the majority that has voted:", err)
		}
		synctest.Wait()
		slow := all[0]
		slow.mu.Lock()
		if len(slow.done) != 0 {
			t.Errorf("the node has executed %v, though its vote is under way", slow.done)
		}
		slow.mu.Unlock()
		close(slow.votes)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []operation{opVote, opEnd}; !slices.Equal(slow.done, want) {
			t.Errorf("the node has executed %v; want %v", slow.done, want)
		}
	})
}

// TestEndDoesNotWaitLongForAVote has the votes of two keys hang at a node each.
func TestEndDoesNotWaitLongForAVote(t *testing.T) {
	for _, together := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, all := openGated(t)
			for _, w := range all {
				close(w.ends)
				close(w.votes)
			}
			all[0].mute, all[1].mute = "a", "b"
			var ends []driver.Ending
			for _, key := range []string{"a", "b", "c"} {
				g, err := s.Acquire(t.Context(), request(key, time.Minute))
				if err != nil {
					t.Fatal(key, err)
				}
				synctest.Wait() // no vote travels with that of the next key
				ends = append(ends, driver.Ending{ID: g.ID, Token: g.Token, Deadline: g.Deadline})
			}
			began := time.Now()
			release := func(ends []driver.Ending) {
				for i, err := range s.Release(t.Context(), ends) {
					if err != nil {
						t.Errorf("release of %s: %v", ends[i].Key, err)
					}
				}
			}
			if together {
				release(ends)
			} else {
				for i := range ends {
					release(ends[i : i+1])
				}
			}
			if took := time.Since(began); took > 5*maxVoteWait {
				t.Errorf("together %v: the releases took %v", together, took)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// cancelled starts an Acquire over three such wires and cancels it when the votes are on
// their way.
func cancelled(t *testing.T) (driver.Session, driver.Request, []*gatedWire) {
	s, all := openGated(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		synctest.Wait()
		cancel()
	}()
	r := request("k", time.Minute)
	if _, err := s.Acquire(ctx, r); err != context.Canceled {
		t.Fatalf("a cancelled Acquire gives %v", err)
	}
	synctest.Wait()
	return s, r, all
}

func TestEndsThatCameBeforeTheRequestsAreSentAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		let  func(*gatedWire) // requests and the first end
		want []operation
	}{
		{"the end is executed first", func(w *gatedWire) {
			w.ends <- struct{}{}
			synctest.Wait()
			close(w.votes)
		}, []operation{opEnd, opVote, opEnd}},
		{"the end is on its way when the request is answered", func(w *gatedWire) {
			close(w.votes)
			synctest.Wait()
			w.ends <- struct{}{}
		}, []operation{opVote, opEnd, opEnd}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _, all := cancelled(t)
				for _, w := range all {
					c.let(w)
					synctest.Wait()
					close(w.ends)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				for i, w := range all {
					if !slices.Equal(w.done, c.want) {
						t.Errorf("node %d has executed %v; want %v", i, w.done, c.want)
					}
				}
			})
		})
	}
}

func TestSessionIsNotClosedBeforeRequestsOnTheirWayAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, all := cancelled(t)
		for _, w := range all {
			close(w.ends)
		}
		closed := make(chan error, 1)
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		for _, w := range all {
			close(w.votes)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for i, w := range all {
			if want := []operation{opEnd, opVote, opEnd}; !slices.Equal(w.done, want) {
				t.Errorf("node %d has executed %v; want %v", i, w.done, want)
			}
		}
	})
}

func TestOwnerWhoseEndIsOwedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, all := cancelled(t)
		for _, w := range all {
			close(w.votes)
		}
		synctest.Wait()
		if _, err := s.Acquire(t.Context(), r); err != driver.ErrPlaceLost {
			t.Errorf("an owner that was given up asks again and gets %v", err)
		}
		for _, w := range all {
			close(w.ends)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// tardyNode answers the first vote that it is asked for never, and executes it when told to.
type tardyNode struct {
	*model
	asked atomic.Bool
	let   chan struct{}
}

func (m *model) held(key string) bool { return m.execute(&command{op: opInspect, key: key}).held }

func (n *tardyNode) run(ctx context.Context, cmds []command) []reply {
	if cmds[0].op != opVote || n.asked.Swap(true) {
		return n.model.run(ctx, cmds)
	}
	go func() {
		<-n.let
		n.model.run(ctx, cmds)
	}()
	<-ctx.Done()
	return slices.Repeat([]reply{{err: ctx.Err()}}, len(cmds))
}

// slowNode answers after a while.
type slowNode struct{ *model }

func (n slowNode) run(ctx context.Context, cmds []command) []reply {
	time.Sleep(time.Millisecond)
	return n.model.run(ctx, cmds)
}

// TestVoteThatIsExecutedAfterTheEndIsUndone has a node execute a vote when its owner has
// ended, and so many others after it that the node does not know it any more. Nobody hears of
// that vote, which would keep the node for a whole TTL.
func TestVoteThatIsExecutedAfterTheEndIsUndone(t *testing.T) {
	const bound = 300 * time.Millisecond
	for _, c := range []struct {
		name    string
		refused bool          // by the other nodes
		held    time.Duration // the lease, which they grant otherwise
	}{
		{"a lease that ends before the node counts as silent", false, 0},
		{"a lease that ends when it does", false, 2 * bound},
		{"no lease", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tardy := &tardyNode{model: newModel("c"), let: make(chan struct{})}
				nodes := []*model{newModel("a"), newModel("b")}
				ws := []wire{tardy}
				for _, m := range nodes {
					ws = append(ws, slowNode{m}) // so that the tardy one is asked too
				}
				d := newDriver([]string{"c", "a", "b"}, func(time.Duration) ([]wire, error) { return ws, nil }, []Option{WithNodeTimeout(bound)})
				p := open(t, d)
				if c.refused {
					other := newOwner()
					for _, m := range nodes {
						m.execute(&command{op: opVote, key: "k", owner: other, ttl: time.Minute})
						m.execute(&command{op: opAccept, key: "k", owner: other, ttl: time.Minute, token: 1})
					}
					if _, err := p.try("k", time.Minute); !isHeld(err) {
						t.Fatalf("a request for a held key returned %v, not a *HeldError", err)
					}
				} else {
					g := p.take("k", time.Minute)
					time.Sleep(c.held)
					p.drop(g)
				}
				time.Sleep(maxVoteWait) // the end is sent by then
				synctest.Wait()
				for range 20 {
					tardy.execute(&command{op: opEnd, key: "k", owner: newOwner()})
				}
				time.Sleep(lateRunTime / 2)
				close(tardy.let)
				synctest.Wait()
				if !tardy.held("k") {
					t.Fatal("the vote was not granted, so that nothing is tested")
				}
				time.Sleep(time.Second)
				if tardy.held("k") {
					t.Error("the node has a vote of nobody")
				}
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// forgettingNode executes no yield before the test does, and loses the replies to the first votes.
type forgettingNode struct {
	*model
	lose   int
	yields []command
}

func (n *forgettingNode) run(ctx context.Context, cmds []command) []reply {
	if cmds[0].op == opYield {
		n.yields = append(n.yields, cmds...)
	} else if rs := n.model.run(ctx, cmds); cmds[0].op != opVote || n.lose == 0 {
		return rs
	} else {
		n.lose--
	}
	<-ctx.Done()
	return slices.Repeat([]reply{{err: ctx.Err()}}, len(cmds))
}

// TestTokenThatMayBeGivenBackIsNotTakenUp has a majority accept a token with its votes. The one who
// asks hears of one vote only and gives it back, by a yield that comes when the lease is granted.
func TestTokenThatMayBeGivenBackIsNotTakenUp(t *testing.T) {
	for _, c := range []struct {
		wait bool
		lose int // so many that the one vote is given back
	}{{false, 1}, {true, 2}} {
		synctest.Test(t, func(t *testing.T) {
			var nodes []*forgettingNode
			var ws []wire
			for range 3 {
				n := &forgettingNode{model: newModel("")}
				n.logic = true
				nodes, ws = append(nodes, n), append(ws, n)
			}
			nodes[1].lose = c.lose
			nodes[2].execute(&command{op: opVote, key: "k", owner: newOwner(), ttl: time.Minute})
			d := newDriver(make([]string, 3), func(time.Duration) ([]wire, error) { return ws, nil }, []Option{WithNodeTimeout(50 * time.Millisecond)})
			d.clock = func() int64 { return 5 }
			p := open(t, d)
			r := request("k", time.Minute)
			r.Wait = c.wait
			g, err := p.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if len(nodes[0].yields) == 0 || nodes[0].yields[0].token != 5 {
				t.Fatalf("given back is %+v, so that nothing is tested", nodes[0].yields)
			}
			for _, c := range nodes[0].yields {
				nodes[0].execute(&c)
			}
			if !nodes[0].held("k") || !nodes[1].held("k") {
				t.Errorf("of 3 nodes: a late yield has taken a vote of the lease with token %d, wait %v", g.Token, c.wait)
			}
			p.drop(g)
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
