package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is a TCP proxy to a server that is some way off: everything arrives later, and as
// much may be under way as there is.
type link struct {
	listen net.Listener
	target string
	delay  time.Duration
	wait   func(until time.Time)
	sent   *atomic.Int64 // commands of Redis clients; nil does not count
	all    sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// newLink delays by that much each way, and counts what Redis clients send if sent is not
// nil. A busy link keeps its time better, and a processor from others.
func newLink(target string, delay time.Duration, busy bool, sent *atomic.Int64) (*link, error) {
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listen: listen, target: target, delay: delay, wait: idleUntil, sent: sent, conns: map[net.Conn]bool{}}
	if busy {
		l.wait = sleepUntil
	}
	l.all.Go(l.accept)
	return l, nil
}

func (l *link) Addr() string { return l.listen.Addr().String() }

// Close cuts all connections and returns when nothing runs any more.
func (l *link) Close() {
	_ = l.listen.Close() // ends accept
	l.mu.Lock()
	l.closed = true
	for c := range l.conns {
		_ = c.Close() // what was under way has lost its reader
	}
	l.mu.Unlock()
	l.all.Wait()
}

func (l *link) accept() {
	for {
		client, err := l.listen.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = client.Close() // as the server itself would refuse
			continue
		}
		l.mu.Lock()
		if l.closed {
			_, _ = client.Close(), server.Close()
		}
		l.conns[client], l.conns[server] = true, true
		l.mu.Unlock()
		saw := func([]byte) {}
		if l.sent != nil {
			saw = (&requests{count: l.sent}).read
		}
		l.all.Go(func() { l.carry(client, server, saw) })
		l.all.Go(func() { l.carry(server, client, func([]byte) {}) })
	}
}

// piece is what was read at once, and when it is due at the other end.
type piece struct {
	data []byte
	due  time.Time
}

// carry takes one direction of a connection until an end closes it, and then closes both.
func (l *link) carry(from, to net.Conn, saw func([]byte)) {
	pieces := make(chan piece, 4096)
	l.all.Go(func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 4<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				saw(buffer[:n])
				pieces <- piece{buffer[:n], time.Now().Add(l.delay)}
			}
			if err != nil {
				return
			}
		}
	})
	for p := range pieces {
		l.wait(p.due)
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	_, _ = from.Close(), to.Close()
	for range pieces { // lets the reader end
		continue
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, from)
	delete(l.conns, to)
}
