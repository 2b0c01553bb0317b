package sqllock_test

import (
	"bytes"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// requests is what a proxy counts: each costs a round trip.
const requests = "requests"

// newProxy starts a proxy to the server at target. It ends with the test. The codec takes
// the COMMIT of an acquisition or release for the request, or the statement that commits itself, and a renewal's UPDATE. If early,
// the first SELECT of a key is an acquisition's request instead. Pushes are all replies on
// connections that listen, and those to statements with named locks.
func newProxy(t testing.TB, target string, early bool) *proxy.Proxy[drivertest.Op] {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[drivertest.Op]{
		Codec: func() proxy.Codec[drivertest.Op] { return &codec{early: early} },
	})
}

// matches returns a filter for requests of one kind.
func matches(op drivertest.Op) func(drivertest.Op) bool {
	return func(o drivertest.Op) bool { return o == op }
}

// codec reads one connection. Statements must be sent as text.
type codec struct {
	proxy.Chunks
	early         bool
	listens       bool
	named         bool // the latest statement has named locks
	adds, removes bool // claims, in the current transaction
}

func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[drivertest.Op]) {
	if d == proxy.ToClient {
		m.Reply, m.Push = true, c.listens || c.named
		return m
	}
	m.Count = requests
	has := func(text string) bool { return bytes.Contains(data, []byte(text)) }
	c.named = has("GET_LOCK(") || has("RELEASE_LOCK(")
	switch {
	case has("SELECT l.lock_key"): // it commits itself, as the next does
		m.Requests = append(m.Requests, drivertest.OpAcquire)
	case has("UPDATE lockaround_lock l"):
		m.Requests = append(m.Requests, drivertest.OpRelease)
	case has("listen ") || has("LISTEN "):
		c.listens = true
	case has("begin") || has("START TRANSACTION"):
		c.adds, c.removes = false, false
	case has("INSERT INTO lockaround_claim"), has("SET state = 1"), has("DELETE FROM lockaround_claim"), has("SET state = 2"):
		c.adds = c.adds || has("INSERT INTO lockaround_claim") || has("SET state = 1")
		c.removes = c.removes || has("DELETE FROM lockaround_claim") || has("SET state = 2")
	case c.early && has("FOR UPDATE") && !has("SKIP LOCKED"): // which a refresh has
		m.Requests = append(m.Requests, drivertest.OpAcquire)
	case has("UPDATE lockaround_claim c SET"):
		m.Requests = append(m.Requests, drivertest.OpRenew)
	case has("commit") || has("COMMIT"):
		if c.adds {
			m.Requests = append(m.Requests, drivertest.OpAcquire)
		}
		if c.removes { // and perhaps grants the key to the next
			m.Requests = append(m.Requests, drivertest.OpRelease)
		}
	}
	return m
}
