package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection. The client library neither bounds the handshake, nor says
// what session time-out the server has granted, nor lets go of a session without
// ending it; the link sees the bytes and does all three.
type link struct {
	net.Conn
	client *client
	limit  time.Duration // of the handshake

	up    atomic.Bool  // the handshake is over
	head  []byte       // what has been read of it
	heard atomic.Int64 // when something was last read, after client.epoch
}

// The handshake's answer begins with its length, the protocol's version, the
// session's time-out in milliseconds and the session's number, 0 if it has expired.
const (
	timeoutAt  = 8
	headLength = 20
)

// opClose ends a session. It is in bytes 8 to 11 of a request, after its length and
// number.
const opClose = -11

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(int64(time.Since(l.client.epoch)))
		if !l.up.Load() {
			l.greet(b[:n])
		}
	}
	return n, err
}

// greet reads the handshake's answer.
func (l *link) greet(b []byte) {
	l.head = append(l.head, b...)
	if len(l.head) >= headLength {
		ms := int32(binary.BigEndian.Uint32(l.head[timeoutAt:]))
		l.client.granted.Store(int64(ms) * int64(time.Millisecond))
		l.head = nil
		l.up.Store(true)
	}
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

var errKept = errors.New("the session is left to expire")

// Write does not send the end of a session that is to outlive the client. The
// library writes each request in one piece.
func (l *link) Write(b []byte) (int, error) {
	if l.client.keep.Load() && len(b) >= 12 && int32(binary.BigEndian.Uint32(b[8:])) == opClose && l.up.Load() {
		_ = l.Conn.Close() // the error below is what counts
		return 0, errKept
	}
	return l.Conn.Write(b)
}

// silentSince reports whether nothing was read after t.
func (l *link) silentSince(t time.Time) bool {
	return l.heard.Load() < int64(t.Sub(l.client.epoch))
}

// dial makes the client library's connections.
func (c *client) dial(network, addr string, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, min(limit, c.attempt))
	defer cancel()
	conn, err := c.config.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: conn, client: c, limit: c.attempt}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = conn.Close() // nothing was sent
		return nil, c.ctx.Err()
	}
	c.link = l
	return l, nil
}

// hosts gives the client library the servers in turn, in an order of its own for
// each session. Unlike the library's, it looks up no names, which the dialer does,
// and lets a connection that was lost be replaced at once.
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
