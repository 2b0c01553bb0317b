package zklock

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

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
