// Package link is a proxy between a process and its store, which does to their
// connections what networks do. The end of a connection travels like the rest, and one that
// has lost something in a hole is reset when the hole closes.
package link

import "github.com/lockaround/lockaround/core/internal/testkit/proxy"

// Link passes connections on to a server.
type Link = proxy.Proxy[[]byte]

// State is what a link does to what it passes on. It is deaf for clients of Redis that have
// subscribed to a channel.
type State = proxy.State

// Direction is one of a connection's two.
type Direction = proxy.Direction

// The directions.
const (
	ToServer = proxy.ToServer
	ToClient = proxy.ToClient
)

// New starts a link to the server at target.
func New(target string) (*Link, error) {
	return proxy.New(target, proxy.Options[[]byte]{Codec: proxy.Redis, Ends: true})
}
