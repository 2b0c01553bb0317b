package zklock

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
	"time"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
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
