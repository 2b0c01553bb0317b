package zktest

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// Op is a kind of request, as ZooKeeper's protocol numbers them.
type Op int32

// The kinds of request.
const (
	Create Op = 1
	Delete Op = 2
	Get    Op = 4
	Set    Op = 5
	Multi  Op = 14
	ping   Op = 11
)

// event is the number of a message that tells of an event.
const event = -1

// What a proxy counts.
const (
	Requests = "requests" // less pings
	Events   = "events"
)

// Proxy passes connections on to a ZooKeeper server, message by message, and does to them
// what networks do. A drop waits for a request that is executed, and pushes are events.
type Proxy = proxy.Proxy[Op]

// NewProxy starts a proxy to the server at target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[Op]{
		Codec:    func() proxy.Codec[Op] { return new(codec) },
		Executed: true,
	})
}

// AnyOf matches requests of these kinds, for [Proxy.DropReply].
func AnyOf(ops ...Op) func(Op) bool {
	return func(op Op) bool { return slices.Contains(ops, op) }
}

// codec is one connection's. The first message of each end makes a session.
type codec struct{ begun [2]bool }

func (*codec) Read(_ proxy.Direction, from io.Reader) ([]byte, error) {
	data := make([]byte, 4)
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(data)
	data = append(data, make([]byte, n)...)
	if _, err := io.ReadFull(from, data[4:]); err != nil {
		return nil, err
	}
	return data, nil
}

// See reads a request's length, number and kind, or a reply's length, number, the number of
// its transaction, and an error or 0.
func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[Op]) {
	number := func(at int) int32 { return int32(binary.BigEndian.Uint32(data[at:])) }
	switch {
	case !c.begun[d]:
		c.begun[d] = true
		m.Prompt = true
	case d == proxy.ToServer && len(data) >= 12:
		op := Op(number(8))
		m.Requests, m.Stream = []Op{op}, uint32(number(4))
		if op != ping {
			m.Count = Requests
		}
	case d == proxy.ToClient && len(data) >= 20:
		if number(4) == event {
			m.Push, m.Count = true, Events
			break
		}
		m.Reply, m.Stream, m.Failed = true, uint32(number(4)), number(16) != 0
	}
	return m
}
