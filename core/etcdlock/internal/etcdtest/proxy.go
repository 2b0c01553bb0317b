package etcdtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Proxy passes connections on to a server and does to them what networks do. It reads
// the frames of HTTP/2 as they pass, so that it knows one request from another, and
// changes none. It ends with the test that started it. Its methods are safe for
// concurrent use, and act on the connections that exist and on those to come.
type Proxy struct {
	target string
	listen net.Listener
	born   time.Time
	all    sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	closed bool
	delay  time.Duration // of what goes to clients
	bunch  time.Duration // between its arrivals; 0 is none
	hole   int           // how many want what goes to clients to be lost
	deaf   int           // how many want what watches send to be lost
	gate   chan struct{} // closed when a stall ends; nil if there is none
	drops  []*drop
	counts map[string]int // of requests, by method
}

// Request is what a client has sent on one stream.
type Request struct {
	Method string // "/etcdserverpb.KV/Txn"
	Body   []byte // a frame's
}

// drop is one reply that is to vanish, with its connection.
type drop struct {
	match  func(Request) bool
	link   *link // that has sent the request; nil before
	stream uint32
	once   sync.Once
	done   chan struct{}
}

func (d *drop) happened() { d.once.Do(func() { close(d.done) }) }

// link is one connection through the proxy.
type link struct {
	p      *Proxy
	server net.Conn
	client net.Conn
	done   chan struct{}
	once   sync.Once

	methods map[uint32]string // by stream; guarded by p.mu
}

// frame is one of HTTP/2, and when it is due at the other end.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
	raw    []byte
	due    time.Time
}

func (f *frame) payload() []byte { return f.raw[9:] }

// NewProxy starts a proxy to the server at target.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	p := &Proxy{target: target, listen: l, born: time.Now(), links: make(map[*link]bool), counts: make(map[string]int)}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's host and port.
func (p *Proxy) Addr() string { return p.listen.Addr().String() }

// Delay lets everything arrive at clients that much later.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Bunch lets what servers send arrive in bunches, with that much time between them.
func (p *Proxy) Bunch(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bunch = d
}

// Stall holds everything back, in both directions, until resume is called.
func (p *Proxy) Stall() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
	gate := p.gate
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.gate == gate {
			p.gate = nil
			close(gate)
		}
	})
}

// LosePushes loses what watches send, until restore is called.
func (p *Proxy) LosePushes() (restore func()) { return p.lose(&p.deaf) }

// LoseReplies loses all that servers send, until restore is called. What is sent to
// them arrives.
func (p *Proxy) LoseReplies() (restore func()) { return p.lose(&p.hole) }

func (p *Proxy) lose(what *int) (restore func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*what++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		*what--
	})
}

// DropReply loses the reply to the next request that matches, after the server has sent
// it: its connection is closed instead. dropped tells whether it has happened, or whether
// the client has given the request up before.
func (p *Proxy) DropReply(match func(Request) bool) (dropped func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &drop{match: match, done: make(chan struct{})}
	p.drops = append(p.drops, d)
	return func() bool {
		select {
		case <-d.done:
			return true
		case <-time.After(10 * time.Second): // what a client sends last may still be on its way
			return false
		}
	}
}

// Count returns how many requests of a method have passed.
func (p *Proxy) Count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[method]
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close() // ends accept
	p.Cut()
	p.all.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close() // as the server itself would refuse
		return
	}
	l := &link{p: p, server: server, client: client, done: make(chan struct{}), methods: make(map[uint32]string)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links[l] = true
	if p.closed {
		l.close()
	}
	up, down := make(chan frame, 1024), make(chan frame, 1024)
	p.all.Go(func() { l.readClient(up) })
	p.all.Go(func() { l.write(server, up) })
	p.all.Go(func() { l.read(server, down, func(f *frame) { f.due = p.due() }) })
	p.all.Go(func() { l.write(client, down) })
}

// due is when what has come from a server now is to arrive.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := time.Since(p.born) + p.delay
	if p.bunch > 0 {
		after = (after/p.bunch + 1) * p.bunch
	}
	return p.born.Add(after)
}

// close ends both connections at once.
func (l *link) close() {
	l.once.Do(func() {
		close(l.done)
		_ = l.server.Close() // nothing is left to be lost
		_ = l.client.Close()
	})
}

// readClient reads what a client sends: a preface, and frames.
func (l *link) readClient(to chan<- frame) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(l.client, preface); err != nil {
		close(to)
		return
	}
	select {
	case to <- frame{raw: preface}:
	case <-l.done:
	}
	var block bytes.Buffer // a header block, which may come in several frames
	fields := hpack.NewDecoder(1<<16, nil)
	l.read(l.client, to, func(f *frame) {
		switch f.kind {
		case http2.FrameHeaders, http2.FrameContinuation:
			block.Write(fragment(f))
			if f.flags.Has(http2.FlagHeadersEndHeaders) {
				l.headers(f.stream, fields, block.Bytes())
				block.Reset()
			}
		case http2.FrameData:
			l.note(f)
		case http2.FrameRSTStream:
			l.reset(f.stream)
		}
	})
}

// fragment is the part of a header block that a frame carries.
func fragment(f *frame) []byte {
	b := f.payload()
	if f.kind != http2.FrameHeaders {
		return b
	}
	if f.flags.Has(http2.FlagHeadersPadded) {
		b = b[1 : len(b)-int(b[0])]
	}
	if f.flags.Has(http2.FlagHeadersPriority) {
		b = b[5:]
	}
	return b
}

// headers learns the method of a stream.
func (l *link) headers(stream uint32, d *hpack.Decoder, block []byte) {
	fields, err := d.DecodeFull(block)
	if err != nil {
		l.close()
		return
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for _, f := range fields {
		if f.Name == ":path" {
			l.methods[stream] = f.Value
			l.p.counts[f.Value]++
		}
	}
}

// note sees what a client asks for.
func (l *link) note(f *frame) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for _, d := range l.p.drops {
		if d.link == nil && d.match(Request{Method: l.methods[f.stream], Body: f.payload()}) {
			d.link, d.stream = l, f.stream
			return
		}
	}
}

// reset sees that a client has given a request up: its reply will not be sent, or not be
// heard.
func (l *link) reset(stream uint32) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	for _, d := range l.p.drops {
		if d.link == l && d.stream == stream {
			d.happened()
		}
	}
}

func (l *link) read(from net.Conn, to chan<- frame, see func(*frame)) {
	defer close(to)
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		f := frame{
			kind: http2.FrameType(head[3]), flags: http2.Flags(head[4]),
			stream: binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1),
			raw:    append(head, make([]byte, length)...),
		}
		if _, err := io.ReadFull(from, f.payload()); err != nil {
			return
		}
		see(&f)
		select {
		case to <- f:
		case <-l.done:
			return
		}
	}
}

func (l *link) write(to net.Conn, from <-chan frame) {
	defer func() {
		l.close()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		delete(l.p.links, l)
	}()
	wait := time.NewTimer(0)
	defer wait.Stop()
	for f := range from {
		if left := time.Until(f.due); left > 0 {
			wait.Reset(left)
			select {
			case <-wait.C:
			case <-l.done:
				return
			}
		}
		for gate := l.p.stalled(); gate != nil; gate = l.p.stalled() {
			select {
			case <-gate:
			case <-l.done:
				return
			}
		}
		if to == l.client {
			pass, cut := l.passes(&f)
			if cut {
				return
			}
			if !pass {
				continue
			}
		}
		if _, err := to.Write(f.raw); err != nil {
			return
		}
	}
}

func (p *Proxy) stalled() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate
}

// passes decides what becomes of a frame for the client: whether it is passed on, and
// whether the connection is cut instead.
func (l *link) passes(f *frame) (pass, cut bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	reply := f.kind == http2.FrameData || f.kind == http2.FrameHeaders
	for _, d := range l.p.drops {
		if reply && d.link == l && d.stream == f.stream {
			d.happened()
			return false, true
		}
	}
	push := f.kind == http2.FrameData && l.methods[f.stream] == "/etcdserverpb.Watch/Watch"
	return l.p.hole == 0 && (!push || l.p.deaf == 0), false
}
