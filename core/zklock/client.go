package zklock

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// client is a ZooKeeper session. The first call that needs it begins it. When it has expired,
// the client library begins another by itself.
type client struct {
	config  *config
	attempt time.Duration // the time of one attempt, which bounds a handshake
	event   func(zk.Event)
	start   func(func()) bool
	epoch   time.Time

	ctx    context.Context // ends when no more connections are to be made
	cancel context.CancelFunc

	granted   atomic.Int64 // the session's time-out, as granted by the server; 0: not yet
	leaveOpen atomic.Bool  // leave the session to expire
	zxid      atomic.Int64 // the latest transaction in a reply; 0: none

	mu      sync.Mutex
	conn    *zk.Conn // nil: not begun yet
	link    *link    // the latest
	up      chan struct{}
	isUp    bool
	authed  bool
	refused error // set while the servers refuse the credentials
	trouble error // why there was no session, as far as a server or the network has said it; nil once there is one
}

func newClient(c *config, attempt time.Duration, start func(func()) bool, event func(zk.Event)) *client {
	cl := &client{config: c, attempt: attempt, start: start, event: event, epoch: time.Now(), up: make(chan struct{})}
	cl.ctx, cl.cancel = context.WithCancel(context.Background())
	return cl
}

// connect begins the session unless it has begun. It does no I/O.
func (c *client) connect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return nil
	}
	if c.ctx.Err() != nil {
		return driver.ErrClosed
	}
	conn, events, err := zk.Connect(c.config.servers, c.config.session,
		zk.WithDialer(c.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(c.onEvent),
		zk.WithLogger(noLog{}), zk.WithLogInfo(false))
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

// dial makes the client library's connections.
func (c *client) dial(network, addr string, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, min(limit, c.attempt))
	defer cancel()
	conn, err := c.config.dial(ctx, network, addr)
	if err != nil {
		c.noteTrouble(err)
		return nil, err
	}
	l := &link{Conn: conn, client: c, limit: c.attempt, zxidBefore: c.zxid.Load()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = conn.Close() // nothing was sent
		return nil, c.ctx.Err()
	}
	c.link = l
	return l, nil
}

// noteTrouble notes why a connection did not come to a session.
func (c *client) noteTrouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = err
}

// unconnected returns the error of a call that has waited so long for a session.
func (c *client) unconnected(after time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &kit.SilenceError{Store: "zookeeper", After: after, Last: c.trouble}
}

// because adds to the client library's error that there is no connection why that is.
func (c *client) because(err error) error {
	if !errors.Is(err, zk.ErrNoServer) && !errors.Is(err, zk.ErrConnectionClosed) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, c.trouble)
}

// noLog drops the client library's messages: they name nodes.
type noLog struct{}

func (noLog) Printf(string, ...any) {}

// onEvent handles the client library's events. It must not block the library's goroutines.
func (c *client) onEvent(e zk.Event) {
	if e.Type == zk.EventSession {
		switch e.State {
		case zk.StateHasSession:
			c.mu.Lock()
			if c.authed || len(c.config.auths) == 0 {
				c.setUp()
			} else {
				c.start(c.authenticate)
			}
			c.mu.Unlock()
		case zk.StateDisconnected, zk.StateExpired:
			c.mu.Lock()
			c.setDown()
			c.mu.Unlock()
		}
	}
	c.event(e)
}

// setUp lets calls through. c.mu is held.
func (c *client) setUp() {
	if !c.isUp {
		c.isUp, c.trouble = true, nil
		close(c.up)
	}
}

// setDown holds calls back until the session is connected again. c.mu is held.
func (c *client) setDown() {
	if c.isUp {
		c.isUp, c.up = false, make(chan struct{})
	}
}

// leave closes a connection on which nothing has come since a request was sent. The client library
// makes another: another server may answer.
func (c *client) leave(l *link, sent time.Time) {
	if !l.silentSince(sent) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l {
		c.setDown()
	}
	_ = l.Close() // nothing is expected from it
}

// authenticate sends the credentials, before any other request. The library repeats that when
// it has connected again.
func (c *client) authenticate() {
	for _, a := range c.config.auths {
		err := c.conn.AddAuth(a.scheme, a.secret)
		if errors.Is(err, zk.ErrAuthFailed) || errors.Is(err, zk.ErrNoAuth) {
			c.mu.Lock()
			c.refused = &driver.PermanentError{Err: errors.New("zookeeper: the servers refuse the credentials of WithAuth")}
			c.setUp()
			c.mu.Unlock()
			return
		}
		if err != nil {
			return // the connection is gone; the next one tries again
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.authed, c.refused = true, nil
	c.setUp()
}

// ready waits until the session is connected.
func (c *client) ready(ctx context.Context, stop <-chan struct{}, limit <-chan time.Time) (*zk.Conn, *link, error) {
	if err := c.connect(); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	select {
	case <-up:
	default:
		half := time.NewTimer(c.attempt / 2)
		defer half.Stop()
		for waits := true; waits; {
			select {
			case <-up:
				waits = false
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			case <-stop:
				return nil, nil, driver.ErrClosed
			case <-half.C: // early enough for the caller to hear why
				if err := c.unconnected(c.attempt / 2); errors.Unwrap(err) != nil {
					return nil, nil, err
				}
			case <-limit:
				return nil, nil, c.unconnected(c.attempt)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn, c.link, c.refused
}

// cappedTTL returns how long a holder may believe in a lease after an answered renewal was
// sent: the TTL, but no more than two fifths of the session's time-out. The leader expires a
// session when it has not heard of it for the time-out. It hears of the clients of another
// server at every half tick. So what it knows may be older than the answer to a request: by a
// third of the time-out, after which the library sends a ping, and by half a tick, which is a
// quarter of the time-out at most. That leaves five twelfths.
func (c *client) cappedTTL(ttl time.Duration) time.Duration {
	if g := time.Duration(c.granted.Load()); g > 0 {
		return min(ttl, g*2/5)
	}
	return ttl
}

// end closes the session, or leaves it to expire if keep is set. The client library's goroutines
// end a little later.
func (c *client) end(keep bool) {
	c.leaveOpen.Store(keep)
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

// abandon closes the connection and makes no other.
func (c *client) abandon() {
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != nil {
		_ = c.link.Close() // nothing is expected from it
	}
}

// link is one connection. It reads the protocol's bytes, to do what the client library cannot:
// bound the handshake, know the session time-out that the server has granted, and leave a
// session without ending it.
//
// It also keeps the number of the latest transaction (zxid). The library reads its own copy
// while another goroutine sets it (go-zookeeper/zk#35), so that after a reconnection it might
// ask for events from too late a time. The link removes the number from replies, and puts its
// own into the requests that have one.
type link struct {
	net.Conn
	client     *client
	limit      time.Duration // of the handshake
	zxidBefore int64         // the latest transaction of earlier connections

	up    atomic.Bool  // the handshake is over
	heard atomic.Int64 // when something was last read, after client.epoch

	// The message that is being read.
	head     [headLength]byte
	headRead int // how many bytes of the head were read
	bodyLeft int // how many bytes are to follow it
}

// A message begins with the length of what follows. In a reply that is the number of the
// request, or a negative number for an event, and the number of the transaction. In the answer
// to the handshake it is the protocol's version and the session's time-out in milliseconds.
const (
	zxidAt      = 8
	timeoutAt   = 8
	headLength  = 16
	maxGreeting = 1 << 10 // the handshake's answer is shorter
)

// After its length a request has a number and an opcode. The handshake has the protocol's
// version, the latest transaction, a time-out and the session, which is 0 for a new one.
const (
	opcodeAt       = 8
	opClose        = -11 // ends the session
	opSetWatches   = 101 // begins with the latest transaction
	watchesSinceAt = 12
	greetSinceAt   = 8
	greetSessionAt = 20
	greetLength    = 28
)

var errNotZooKeeper = errors.New("what the server sends is not ZooKeeper's")

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(int64(time.Since(l.client.epoch)))
		if !l.scan(b[:n]) {
			l.client.noteTrouble(errNotZooKeeper)
			return n, errNotZooKeeper
		}
	}
	switch {
	case err == nil:
	case !l.up.Load():
		l.client.noteTrouble(fmt.Errorf("the handshake with %v: %w", l.RemoteAddr(), err))
	case !errors.Is(err, net.ErrClosed): // the library tells those who wait for answers only that it is closed
		l.client.noteTrouble(fmt.Errorf("the connection broke: %w", err))
	}
	return n, err
}

// scan goes through the bytes that were read and clears the numbers of transactions. It reports
// whether the bytes may be ZooKeeper's.
func (l *link) scan(b []byte) bool {
	for len(b) > 0 {
		var n int
		if l.headRead < headLength {
			n = copy(l.head[l.headRead:], b)
			if l.up.Load() {
				clear(b[min(n, max(0, zxidAt-l.headRead)):n])
			}
			l.headRead += n
			if !l.readHead() {
				return false
			}
		} else {
			n = min(len(b), l.bodyLeft)
			l.bodyLeft -= n
		}
		b = b[n:]
		if l.headRead == headLength && l.bodyLeft == 0 {
			l.headRead = 0
			l.up.Store(true)
		}
	}
	return true
}

// readHead reads the head as far as it has come, and reports whether it may be ZooKeeper's.
func (l *link) readHead() bool {
	if l.headRead < 4 {
		return true
	}
	length := int(int32(binary.BigEndian.Uint32(l.head[:])))
	if length < headLength-4 || !l.up.Load() && length > maxGreeting {
		return false
	}
	if l.headRead < headLength {
		return true
	}
	l.bodyLeft = length - (headLength - 4)
	if !l.up.Load() {
		ms := int32(binary.BigEndian.Uint32(l.head[timeoutAt:]))
		l.client.granted.Store(int64(ms) * int64(time.Millisecond))
	} else if zxid := int64(binary.BigEndian.Uint64(l.head[zxidAt:])); zxid > 0 {
		l.client.zxid.Store(zxid)
	}
	return true
}

// SetReadDeadline bounds the handshake, whatever the client library asks for.
func (l *link) SetReadDeadline(t time.Time) error {
	if !l.up.Load() {
		if limit := time.Now().Add(l.limit); t.IsZero() || t.After(limit) {
			t = limit
		}
	}
	return l.Conn.SetReadDeadline(t)
}

var errLeftOpen = errors.New("the session is left to expire")

// Write sends a request, except for the end of a session that is left to expire. The library
// writes each request in one piece.
func (l *link) Write(b []byte) (int, error) {
	if !l.up.Load() {
		if len(b) >= greetLength && binary.BigEndian.Uint64(b[greetSessionAt:]) != 0 {
			b = l.setZxid(b, greetSinceAt)
		}
		return l.Conn.Write(b)
	}
	if len(b) >= opcodeAt+4 {
		switch op := int32(binary.BigEndian.Uint32(b[opcodeAt:])); {
		case op == opClose && l.client.leaveOpen.Load():
			_ = l.Conn.Close() // the error below is what counts
			return 0, errLeftOpen
		case op == opSetWatches && len(b) >= watchesSinceAt+8:
			b = l.setZxid(b, watchesSinceAt)
		}
	}
	return l.Conn.Write(b)
}

// setZxid returns a copy of a request with zxidBefore as its transaction.
func (l *link) setZxid(b []byte, at int) []byte {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint64(b[at:], uint64(l.zxidBefore))
	return b
}

// silentSince reports whether nothing was read after t.
func (l *link) silentSince(t time.Time) bool {
	return l.heard.Load() < int64(t.Sub(l.client.epoch))
}

// hosts gives the client library one server after another, in a random order for each session.
// Unlike the library's own list it looks up no names, which the dialer does, and a connection
// that was lost is replaced at once.
type hosts struct {
	mu    sync.Mutex
	all   []string
	next  int
	tries int // since a server was reached
}

func (h *hosts) Init(servers []string) error {
	h.all = append([]string(nil), servers...)
	rand.Shuffle(len(h.all), func(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] })
	return nil
}

func (h *hosts) Len() int { return len(h.all) }

// Next returns the next server, and whether all have been tried in vain, after
// which the library pauses for a second.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	server = h.all[h.next]
	h.next = (h.next + 1) % len(h.all)
	h.tries++
	return server, h.tries > len(h.all) && h.tries%len(h.all) == 1%len(h.all)
}

func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries = 0
}
