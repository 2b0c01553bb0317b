package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
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

type zkDriver struct{ config }

// New returns a driver for the locks in one ensemble of ZooKeeper servers, 3.5.3 or
// later, given as hosts or host:port; the port is 2181 if it is missing. It does no
// I/O. Each session of the driver is one session of ZooKeeper with one connection.
func New(servers []string, opts ...Option) driver.Driver {
	c := config{
		servers: append([]string(nil), servers...),
		session: DefaultSessionTimeout,
		root:    DefaultRoot,
		acl:     zk.WorldACL(zk.PermAll),
		dial:    new(net.Dialer).DialContext,
	}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	return &zkDriver{c}
}

// Capabilities says what ZooKeeper offers.
func (*zkDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:   "zookeeper",
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: minTTL,
		Tokens: driver.DurableTokens,
		Strict: true,
		Oust:   true,
		Recall: true,
		Wake:   wake,
	}
}

// Open starts a session.
func (d *zkDriver) Open(c driver.Config) (driver.Session, error) {
	if err := d.usable(c); err != nil {
		return nil, fmt.Errorf("open a ZooKeeper lock session: %w", err)
	}
	return newSession(&d.config, c), nil
}

// usable reports what is wrong with the options.
func (d *zkDriver) usable(c driver.Config) error {
	switch {
	case c.Sink == nil:
		return errors.New("Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return fmt.Errorf("Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	case len(d.servers) == 0:
		return errors.New("no servers are given; name at least one as host:port")
	case d.session < time.Millisecond || d.session > 1<<31*time.Millisecond-1:
		return fmt.Errorf("WithSessionTimeout(%v); use 1ms to 24 days", d.session)
	case d.dial == nil:
		return errors.New("WithDialer(nil); leave the option out for a net.Dialer")
	case !strings.HasPrefix(d.root, "/") || d.root == "/" || path.Clean(d.root) != d.root:
		return fmt.Errorf("WithRoot(%q); use a path such as %q", d.root, DefaultRoot)
	}
	return nil
}
