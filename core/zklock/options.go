package zklock

import (
	"context"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// minTTL leaves time for a round trip to a quorum, and for three refreshes of a place.
	minTTL = time.Second

	// DefaultSessionTimeout is the longest time-out that servers grant by default.
	DefaultSessionTimeout = 40 * time.Second

	// wake bounds the delay of a waiter whose event was lost.
	wake = time.Second
)

// Option configures a driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithSessionTimeout sets the session time-out to ask the servers for. They keep it within
// their own bounds, by default 2 to 20 ticks. After that time nothing is left of a process
// that has crashed. A holder gives up when no server has answered for two fifths of it,
// however long its TTL. The default is DefaultSessionTimeout; less than a millisecond is an
// error of Open.
func WithSessionTimeout(d time.Duration) Option {
	return optionFunc(func(c *config) { c.session = d })
}

// WithRoot sets the node under which the keys have theirs, a path such as
// "/shop/locks". The driver creates it if it is missing. The default is DefaultRoot.
// Drivers with different roots do not exclude each other.
func WithRoot(path string) Option { return optionFunc(func(c *config) { c.root = path }) }

// WithAuth sets the credentials of the client, as AddAuth of the client library does:
// WithAuth("digest", []byte("user:password")). If it is given several times, all are used.
func WithAuth(scheme string, secret []byte) Option {
	return optionFunc(func(c *config) { c.auths = append(c.auths, auth{scheme, secret}) })
}

// WithACL sets the permissions of the nodes that the driver creates. All drivers that use a
// root need all permissions on its nodes. The default permits everybody everything.
// zk.AuthACL(zk.PermAll) with WithAuth permits only clients with the same credentials.
func WithACL(acl ...zk.ACL) Option { return optionFunc(func(c *config) { c.acl = acl }) }

// WithDialer sets how connections are made, by (*tls.Dialer).DialContext for
// example. The context bounds the dialling, not the connection. The default is a
// net.Dialer.
func WithDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error)) Option {
	return optionFunc(func(c *config) { c.dial = dial })
}

type auth struct {
	scheme string
	secret []byte
}

type config struct {
	servers []string
	session time.Duration
	root    string
	auths   []auth
	acl     []zk.ACL
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
}
