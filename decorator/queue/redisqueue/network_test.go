package redisqueue_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// network is between a client and its server, and does what networks do.
type network struct {
	mu   sync.Mutex
	lose bool // the reply to the next script that the server runs
}

type link struct {
	net.Conn
	n      *network
	doomed bool
}

func newNetwork() *network { return &network{} }

// by is the options of a client that connects by the network.
func (n *network) by(o redis.Options) redis.Options {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &link{Conn: c, n: n}, nil
	}
	return o
}

func (l *link) Write(p []byte) (int, error) {
	l.n.mu.Lock()
	lower := bytes.ToLower(p)
	if l.n.lose && (bytes.Contains(lower, []byte("\r\nevalsha\r\n")) || bytes.Contains(lower, []byte("\r\neval\r\n"))) {
		l.n.lose, l.doomed = false, true
	}
	l.n.mu.Unlock()
	return l.Conn.Write(p)
}

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p) // so that the server has done what it was asked for
	l.n.mu.Lock()
	if l.doomed && bytes.HasPrefix(p[:n], []byte("-NOSCRIPT")) {
		l.n.lose, l.doomed = true, false // nothing was run: the script is sent again, whole
	}
	doomed := l.doomed
	l.n.mu.Unlock()
	if doomed {
		_ = l.Close()
		return 0, io.ErrUnexpectedEOF // as it is, for go-redis to know it
	}
	return n, err
}

// loseReply loses the reply to the next script that the server runs; lost tells whether that has happened.
func (n *network) loseReply() (lost func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = true
	return func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return !n.lose
	}
}
