package zklock

import (
	"bytes"
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
// ending it; the link sees the bytes and does all three. It also keeps the number of
// the latest transaction (zxid) for the library, which reads its own while another
// goroutine sets it (go-zookeeper/zk#35): when it has connected again, it might ask for
// the events since a time at which they had passed. Replies reach the library without
// the number, and the link puts it into the requests that have one.
type link struct {
	net.Conn
	client *client
	limit  time.Duration // of the handshake
	since  int64         // the latest transaction that earlier connections have shown

	up    atomic.Bool  // the handshake is over
	heard atomic.Int64 // when something was last read, after client.epoch

	// The message that is being read.
	head [headLength]byte
	at   int // how much of the head was read
	left int // how much is to follow it
}

// A message begins with its length, not counting that. There follow in a reply the
// number of the request, or a negative one if there is none, and that of the
// transaction; in the handshake's answer the protocol's version and the session's
// time-out in milliseconds.
const (
	zxidAt     = 8
	timeoutAt  = 8
	headLength = 16
	greetings  = 1 << 10 // the handshake's answer is shorter
)

// After its length a request has a number and what it asks for, and the handshake the
// protocol's version, the latest transaction, a time-out and the session, 0 for a new
// one.
const (
	opcodeAt       = 8
	opClose        = -11 // ends the session
	opSetWatches   = 101 // begins with the latest transaction
	watchesSinceAt = 12
	greetSinceAt   = 8
	greetSessionAt = 20
	greetLength    = 28
)

var errAlien = errors.New("what the server sends is not ZooKeeper's")

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.heard.Store(int64(time.Since(l.client.epoch)))
		if !l.scan(b[:n]) {
			return n, errAlien
		}
	}
	return n, err
}

// scan goes through what was read, takes the numbers of transactions out, and reports
// whether it may be ZooKeeper's.
func (l *link) scan(b []byte) bool {
	for len(b) > 0 {
		var n int
		if l.at < headLength {
			n = copy(l.head[l.at:], b)
			if l.up.Load() {
				clear(b[min(n, max(0, zxidAt-l.at)):n])
			}
			l.at += n
			if !l.measure() {
				return false
			}
		} else {
			n = min(len(b), l.left)
			l.left -= n
		}
		b = b[n:]
		if l.at == headLength && l.left == 0 {
			l.at = 0
			l.up.Store(true)
		}
	}
	return true
}

// measure takes what is known of the head.
func (l *link) measure() bool {
	if l.at < 4 {
		return true
	}
	length := int(int32(binary.BigEndian.Uint32(l.head[:])))
	if length < headLength-4 || !l.up.Load() && length > greetings {
		return false
	}
	if l.at < headLength {
		return true
	}
	l.left = length - (headLength - 4)
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

var errKept = errors.New("the session is left to expire")

// Write does not send the end of a session that is to outlive the client. The
// library writes each request in one piece.
func (l *link) Write(b []byte) (int, error) {
	if !l.up.Load() {
		if len(b) >= greetLength && binary.BigEndian.Uint64(b[greetSessionAt:]) != 0 {
			b = l.date(b, greetSinceAt)
		}
		return l.Conn.Write(b)
	}
	if len(b) >= opcodeAt+4 {
		switch op := int32(binary.BigEndian.Uint32(b[opcodeAt:])); {
		case op == opClose && l.client.keep.Load():
			_ = l.Conn.Close() // the error below is what counts
			return 0, errKept
		case op == opSetWatches && len(b) >= watchesSinceAt+8:
			b = l.date(b, watchesSinceAt)
		}
	}
	return l.Conn.Write(b)
}

// date returns a request with the latest transaction that was seen when the link was
// made.
func (l *link) date(b []byte, at int) []byte {
	b = bytes.Clone(b)
	binary.BigEndian.PutUint64(b[at:], uint64(l.since))
	return b
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
	l := &link{Conn: conn, client: c, limit: c.attempt, since: c.zxid.Load()}
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
