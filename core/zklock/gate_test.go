package zklock_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/core/zklock/internal/zktest"
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

// kindAt returns the kind of request that is named at an index. That of the whole is at 8, and that
// of the first part of a [zktest.Multi] at 12.
func kindAt(request []byte, i int) zktest.Op {
	if len(request) < i+4 {
		return 0
	}
	return zktest.Op(binary.BigEndian.Uint32(request[i:]))
}

// setsWatch matches a request to read a node and to watch it.
func setsWatch(request []byte) bool {
	return kindAt(request, 8) == zktest.Get && request[len(request)-1] == 1
}

// deletes matches a request of several parts, of which the first deletes a node.
func deletes(request []byte) bool {
	return kindAt(request, 8) == zktest.Multi && kindAt(request, 12) == zktest.Delete
}
