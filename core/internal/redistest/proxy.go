// Package redistest has what tests do to Redis servers and the connections to them.
package redistest

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// Proxy passes connections on to a Redis server and does to them what networks do. A
// request is what a client has sent in one piece. A drop loses the replies that follow at
// once too, and pushes are what goes to clients which have subscribed to a channel.
type Proxy = proxy.Proxy[[]byte]

// The directions, for [Proxy.BlackHole].
const (
	ToServer = proxy.ToServer
	ToClient = proxy.ToClient
)

// NewProxy starts a proxy to the server at target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[[]byte]{Codec: proxy.Redis})
}
