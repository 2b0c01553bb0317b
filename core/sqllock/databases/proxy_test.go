package databases_test

import (
	"bytes"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// requests is what a proxy counts: each costs a round trip.
const requests = "requests"

// newProxy starts a proxy to the server at target that ends with the test. A request is the
// COMMIT of an acquisition or release, or a renewal; if early, an acquisition is known by its
// first look at the key instead. Pushes are what goes to clients which listen.
func newProxy(t testing.TB, target string, early bool) *proxy.Proxy[drivertest.Op] {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[drivertest.Op]{
		Codec: func() proxy.Codec[drivertest.Op] { return &codec{early: early} },
	})
}

// is matches requests of one kind.
func is(op drivertest.Op) func(drivertest.Op) bool {
	return func(o drivertest.Op) bool { return o == op }
}

// codec is one connection's. It reads statements that are sent as text.
type codec struct {
	proxy.Chunks
	early         bool
	listens       bool
	adds, removes bool // what its transaction has done to the claims
}

func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[drivertest.Op]) {
	if d == proxy.ToClient {
		m.Reply, m.Push = true, c.listens
		return m
	}
	m.Count = requests
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) }
	switch {
	case has("listen ") || has("LISTEN "):
		c.listens = true
	case has("begin") || has("START TRANSACTION"):
		c.adds, c.removes = false, false
	case has("INSERT INTO lockaround_claim") || has("SET state = 1"):
		c.adds = true
	case has("DELETE FROM lockaround_claim") || has("SET state = 2"):
		c.removes = true
	case c.early && has("FOR UPDATE"):
		m.Requests = append(m.Requests, drivertest.OpAcquire)
	case has("UPDATE lockaround_claim c SET"):
		m.Requests = append(m.Requests, drivertest.OpRenew)
	case has("commit") || has("COMMIT"):
		if c.adds {
			m.Requests = append(m.Requests, drivertest.OpAcquire)
		}
		if c.removes { // and perhaps lets in who is next
			m.Requests = append(m.Requests, drivertest.OpRelease)
		}
	}
	return m
}
