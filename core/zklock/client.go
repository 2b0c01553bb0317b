package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// client is a ZooKeeper session, begun by the first call that needs it. When it has
// expired the client library begins another by itself.
type client struct {
	config  *config
	attempt time.Duration // bounds a handshake
	event   func(zk.Event)
	start   func(func()) bool
	epoch   time.Time

	ctx    context.Context // ends when no connection is to be made any more
	cancel context.CancelFunc

	granted atomic.Int64 // the session's time-out as the server has granted it; 0 before
	keep    atomic.Bool  // leave the session to expire
	zxid    atomic.Int64 // the latest transaction that a server has shown; 0: none

	mu      sync.Mutex
	conn    *zk.Conn // nil: not begun
	link    *link    // the latest
	up      chan struct{}
	isUp    bool
	authed  bool
	refused error // the servers do not accept the credentials
}

func newClient(c *config, attempt time.Duration, start func(func()) bool, event func(zk.Event)) *client {
	cl := &client{config: c, attempt: attempt, start: start, event: event, epoch: time.Now(), up: make(chan struct{})}
	cl.ctx, cl.cancel = context.WithCancel(context.Background())
	return cl
}

// begin makes the session unless it is there. It does no I/O.
func (c *client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return driver.ErrClosed
	}
	conn, events, err := zk.Connect(c.config.servers, c.config.session,
		zk.WithDialer(c.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(c.see),
		zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return &driver.PermanentError{Err: err}
	}
	c.conn = conn
	if !c.start(func() {
		for range events { // until the library's goroutines have ended
		}
	}) {
		return driver.ErrClosed
	}
	return nil
}

// quiet drops the client library's messages: they name nodes.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// see takes the client library's events, on goroutines that must not be held up.
func (c *client) see(e zk.Event) {
	if e.Type == zk.EventSession {
		switch e.State {
		case zk.StateHasSession:
			c.mu.Lock()
			if c.authed || len(c.config.auths) == 0 {
				c.rise()
			} else {
				c.start(c.authenticate)
			}
			c.mu.Unlock()
		case zk.StateDisconnected, zk.StateExpired:
			c.mu.Lock()
			c.sink()
			c.mu.Unlock()
		}
	}
	c.event(e)
}

// rise lets calls through. c.mu is held.
func (c *client) rise() {
	if !c.isUp {
		c.isUp = true
		close(c.up)
	}
}

// sink holds calls back until the session is connected again. c.mu is held.
func (c *client) sink() {
	if c.isUp {
		c.isUp, c.up = false, make(chan struct{})
	}
}

// cut ends a connection on which nothing is answered. The client library makes
// another.
func (c *client) cut(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l {
		c.sink()
	}
	_ = l.Close() // nothing is expected from it
}

// authenticate tells the servers who the client is, before anything is asked. The
// library repeats it when it has connected again.
func (c *client) authenticate() {
	for _, a := range c.config.auths {
		err := c.conn.AddAuth(a.scheme, a.secret)
		if errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zk.ErrNoAuth) {
			c.mu.Lock()
			c.refused = &driver.PermanentError{Err: errors.New("zookeeper: the servers refuse the credentials of WithAuth")}
			c.rise()
			c.mu.Unlock()
			return
		}
		if err != nil {
			return // the connection is gone; the next one tries again
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authed = true
	c.rise()
}

// ready waits until the session is connected.
func (c *client) ready(ctx context.Context, stop <-chan struct{}, limit <-chan time.Time) (*zk.Conn, *link, error) {
	if err := c.begin(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	select {
	case <-up:
	default:
		select {
		case <-up:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-stop:
			return nil, nil, driver.ErrClosed
		case <-limit:
			return nil, nil, silence(c.attempt)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn, c.link, c.refused
}

// lasting returns for how long a lease may be believed in after it was last heard
// of. The servers let a session live for its time-out after they heard from it. The
// leader, who decides, hears from the client of another server at every half tick,
// so what it knows may be older than the answer to a request: by a third of the
// time-out, after which the library sends a ping, and half a tick, a quarter of the
// time-out at most. That leaves five twelfths.
func (c *client) lasting(ttl time.Duration) time.Duration {
	if g := time.Duration(c.granted.Load()); g > 0 {
		return min(ttl, g*2/5)
	}
	return ttl
}

// end closes the session, or leaves it to expire. The client library's goroutines
// end a little later.
func (c *client) end(keep bool) {
	c.keep.Store(keep)
	c.mu.Lock()
	conn, up := c.conn, c.isUp
	if keep || !up {
		c.cancel()
	}
	l := c.link
	c.mu.Unlock()
	if conn == nil {
		c.cancel()
		return
	}
	if !up && l != nil {
		_ = l.Close() // ends a handshake
	}
	conn.Close()
	c.abandon()
}

// abandon cuts the connection and makes no other.
func (c *client) abandon() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		_ = c.link.Close() // nothing is expected from it
	}
}
