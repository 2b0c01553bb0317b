package zklock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

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
func (d *zkDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:    "zookeeper",
		Address: strings.Join(d.servers, ", "),
		Modes:   []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL:  minTTL,
		Tokens:  driver.DurableTokens,
		Strict:  true,
		Bounds:  true,
		Oust:    true,
		Recall:  true,
		Wake:    wake,
	}
}

// Open starts a session.
func (d *zkDriver) Open(c driver.Config) (driver.Session, error) {
	if err := d.usable(c); err != nil {
		return nil, fmt.Errorf("open a ZooKeeper lock session: %w", err)
	}
	return newSession(&d.config, c), nil
}

// session is one engine's session with the servers.
type session struct {
	*config
	sink       driver.Sink
	timeout    time.Duration // of one attempt
	client     *client
	claims     claims
	keyWatches keyWatches

	*kit.Life
	debts *kit.Debts[debt]
}

func newSession(c *config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, Life: kit.NewLife("zookeeper", "the servers")}
	s.client = newClient(c, dc.StoreTimeout, s.Start, s.event)
	s.claims.init(s)
	s.keyWatches.init(s)
	s.debts = kit.NewDebts[debt](s.Life, cleaners)
	return s
}

var _ driver.Session = (*session)(nil)

// Close ends the session. Without leases ZooKeeper's session is closed; with some it
// is left to expire, so that they last until their TTL or its time-out is over.
func (s *session) Close(ctx context.Context) error {
	err := s.Life.Close(ctx, s.debts.Drain, func() { s.client.end(s.claims.stopTimers()) })
	if ctx.Err() != nil {
		s.client.abandon()
	}
	return err
}

// event handles the client library's events. It must not block the library's goroutines.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.keyWatches.clear()
		s.claims.expire()
	case e.Path != "":
		s.claims.changed(e.Path, e.Type == zk.EventNodeDeleted)
		s.keyWatches.nodeChanged(e.Path)
	}
}

// keyPath returns the path of a key's node.
func (s *session) keyPath(key string) string { return s.root + "/" + keyName(key) }

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
	for i, s := range d.servers {
		if fault := addressFault(s); fault != "" {
			return fmt.Errorf("servers[%d] is %q: %s", i, s, fault)
		}
	}
	return nil
}

// addressFault says what is wrong with a server's address, and what would be right; "" is nothing.
func addressFault(s string) string {
	switch {
	case strings.TrimSpace(s) == "":
		return "it is empty; use host:port"
	case strings.Contains(s, ","):
		return "it names several servers; give each of them alone"
	case strings.Contains(s, "://"):
		return "it has a scheme; use host:port"
	case strings.Contains(s, "/"):
		return "it has a path; use host:port, and WithRoot for the node under which the keys are"
	case strings.ContainsFunc(s, unicode.IsSpace):
		return "it has blanks; use host:port"
	case !strings.Contains(s, ":"):
		return ""
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "it is no host:port; an IPv6 address is in brackets, as in [::1]:2181"
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return "its port is not one of 1 to 65535"
	}
	return ""
}

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

// Ping reports whether the servers answer and permit what the driver needs. It creates and
// deletes a node in one step, so that nobody sees it. If the root does not exist, it does that
// with the root.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	c := s.callerOf(ctx)
	err := s.probe(c)
	if retryAtOnce(c, err) {
		err = s.probe(c)
	}
	return callerError(err)
}

func (s *session) probe(c caller) error {
	for probe := s.root + "/ping"; ; probe = path.Dir(probe) {
		err := do(s, c, func(conn *zk.Conn) error {
			_, err := conn.Multi(
				&zk.CreateRequest{Path: probe, Acl: s.acl},
				&zk.SetDataRequest{Path: probe, Version: -1},
				&zk.DeleteRequest{Path: probe, Version: -1})
			return err
		})
		if err != zk.ErrNoNode || probe == "/" {
			return ignore(err, zk.ErrNodeExists) // somebody has just created it
		}
	}
}
