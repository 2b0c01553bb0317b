package zklock_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	tproxy "github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

// gate holds back the first request of a session that matches, and what comes after it.
type gate struct {
	matches func(request []byte) bool
	first   sync.Once
	reached chan struct{} // closed when the request is held back
	opened  chan struct{}
	open    func()
}

// newGate returns a gate that opens with the end of the test at the latest.
func newGate(t *testing.T, matches func(request []byte) bool) *gate {
	g := &gate{matches: matches, reached: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open)
	return g
}

func (g *gate) dialer() zklock.Option {
	return zklock.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &gated{conn, g}, err
	})
}

type gated struct {
	net.Conn
	gate *gate
}

// Write gets each request in one piece.
func (c *gated) Write(b []byte) (int, error) {
	if c.gate.matches(b) {
		c.gate.first.Do(func() {
			close(c.gate.reached)
			<-c.gate.opened
		})
	}
	return c.Conn.Write(b)
}

// setsWatch matches a request to read a node and to watch it. Its kind is at 8.
func setsWatch(request []byte) bool {
	return len(request) > 12 && zktest.Op(binary.BigEndian.Uint32(request[8:])) == zktest.Get && request[len(request)-1] == 1
}

// TestRoomIsFoundThoughTheLineMovedBeforeItWasWatched holds a reader back between its first two looks
// at the line. Meanwhile two of those before it leave, and the third, whom it is about to watch, is
// let in.
func TestRoomIsFoundThoughTheLineMovedBeforeItWasWatched(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, warm)
	d := zklock.New([]string{s.Addr()}, long)
	watching := newGate(t, setsWatch)
	a, b, c := open(t, d), open(t, d), open(t, d)
	reader := open(t, zklock.New([]string{s.Addr()}, long, watching.dialer()))
	var held []driver.Grant
	for _, p := range []*process{a, b} {
		g, err := p.Acquire(t.Context(), permit("k", hold))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, g)
	}
	third := c.queueAs(permit("k", hold))
	r := request("k", hold)
	r.Mode, r.Wait = driver.Shared, true
	last := reader.ask(r)
	await(t, "the reader's watch of the one before it", watching.reached)
	a.drop(held[0])
	b.drop(held[1])
	g := granted(t, "the grant of a place that became free", third)
	watching.open()
	reader.drop(granted(t, "the grant of the other place", last))
	c.drop(g)
}

// TestOustSparesALeaseThatWasGrantedMeanwhile cuts off a request that waits. When those before it
// have gone, somebody ends the lease of the last of them once more, and the request hears only then
// that its turn has come.
func TestOustSparesALeaseThatWasGrantedMeanwhile(t *testing.T) {
	t.Parallel()
	_, proxy, last, d := pair(t)
	a, b := open(t, d), open(t, d)
	g := a.take("k", hold)
	w := b.queue("k", hold)
	eventually(t, "an answer", func() bool { return last.Ping(t.Context()) == nil })
	hear := proxy.BlackHole(tproxy.ToClient)
	t.Cleanup(hear)
	r := request("k", hold)
	r.Wait = true
	waiting := last.ask(r)
	eventually(t, "the last request's place", func() bool { return a.state("k").Waiting == 2 })
	a.drop(g)
	g = granted(t, "the grant to the second", w)
	b.drop(g)
	if err := b.Oust(t.Context(), "k", g.Token); err != nil {
		t.Errorf("oust: %v", err)
	}
	if st := b.state("k"); !st.Held || st.Token <= g.Token {
		t.Errorf("after an oust up to %d the key is %+v; want it held by the next", g.Token, st)
	}
	hear()
	proxy.Cut()
	next := granted(t, "the grant to the last", waiting)
	if next.Token <= g.Token {
		t.Errorf("token %d follows %d", next.Token, g.Token)
	}
	last.drop(next)
}
