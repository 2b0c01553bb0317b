package zkqueue

import (
	"encoding/binary"
	"net"
	"time"
)

// handshake is how long a server may take to answer a connection's first request.
const handshake = 10 * time.Second

// Dial connects for the client library: zk.WithDialer(zkqueue.Dial). It mends two faults of the library.
//
// The library waits ten times the session's time-out for the answer to a connection's first
// request, and tries no other server meanwhile. This one may be starting, or stopped: Dial gives it
// 10 s.
//
// The library reads the number of the latest transaction while another goroutine writes it, to tell a server when it
// connects again which events it has seen. Dial hides the numbers from it. So after each
// reconnection a watch fires at once, and none is lost.
func Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, max(timeout, handshake))
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, limit: time.Now().Add(handshake)}, nil
}

// link is a connection of the client library. It goes through what is received, message by message: a
// length, the number of a request, that of a transaction, and the rest. The first message answers the
// handshake and is another one.
type link struct {
	net.Conn
	limit time.Time // of the handshake

	up   bool    // the handshake is over
	head [4]byte // the length of a message
	at   int64   // how much of the message was read, with its length
}

const (
	zxidAt  = 8
	zxidEnd = 16
)

// SetReadDeadline bounds the handshake, whatever the library asks for.
func (l *link) SetReadDeadline(t time.Time) error {
	if !l.up && (t.IsZero() || t.After(l.limit)) {
		t = l.limit
	}
	return l.Conn.SetReadDeadline(t)
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.scan(b[:n])
	return n, err
}

// scan clears the numbers of transactions.
func (l *link) scan(b []byte) {
	for len(b) > 0 {
		if l.at < int64(len(l.head)) {
			n := copy(l.head[l.at:], b)
			l.at += int64(n)
			b = b[n:]
			continue
		}
		size := int64(len(l.head)) + int64(binary.BigEndian.Uint32(l.head[:]))
		n := min(int64(len(b)), size-l.at)
		if l.up {
			clear(b[min(n, max(0, zxidAt-l.at)):min(n, max(0, zxidEnd-l.at))])
		}
		l.at += n
		b = b[n:]
		if l.at == size {
			l.at, l.up = 0, true
		}
	}
}
