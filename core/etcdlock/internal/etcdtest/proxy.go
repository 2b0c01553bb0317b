package etcdtest

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// Proxy passes connections on to an etcd server and does to them what networks do. It reads
// the frames of HTTP/2 as they pass, so that it knows one request from another, and
// changes none. It counts requests by their methods, and pushes are what watches send.
type Proxy = proxy.Proxy[Request]

// State is what a proxy does to what it passes on.
type State = proxy.State

// Request is what a client has sent on one stream.
type Request struct {
	Method string // "/etcdserverpb.KV/Txn"
	Body   []byte // a frame's
}

// NewProxy starts a proxy to the server at target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[Request]{
		Codec: func() proxy.Codec[Request] {
			return &codec{fields: hpack.NewDecoder(1<<16, nil), methods: map[uint32]string{}}
		},
		Patience: 10 * time.Second,
	})
}

// codec is one connection's.
type codec struct {
	begun   bool         // the client's preface has been read
	block   bytes.Buffer // a header block, which may come in several frames
	fields  *hpack.Decoder
	methods map[uint32]string // by stream
}

// Read reads a client's preface, and frames.
func (c *codec) Read(d proxy.Direction, from io.Reader) ([]byte, error) {
	length := 9
	if d == proxy.ToServer && !c.begun {
		length = len(http2.ClientPreface)
	}
	data := make([]byte, length)
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, err
	}
	if length != 9 {
		return data, nil
	}
	length = int(data[0])<<16 | int(data[1])<<8 | int(data[2])
	data = append(data, make([]byte, length)...)
	if _, err := io.ReadFull(from, data[9:]); err != nil {
		return nil, err
	}
	return data, nil
}

func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[Request]) {
	if d == proxy.ToServer && !c.begun {
		c.begun = true
		return m
	}
	kind, flags, payload := http2.FrameType(data[3]), http2.Flags(data[4]), data[9:]
	m.Stream = binary.BigEndian.Uint32(data[5:]) & (1<<31 - 1)
	if d == proxy.ToClient {
		m.Reply = kind == http2.FrameData || kind == http2.FrameHeaders
		m.Push = kind == http2.FrameData && c.methods[m.Stream] == "/etcdserverpb.Watch/Watch"
		return m
	}
	switch kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		c.block.Write(fragment(kind, flags, payload))
		if flags.Has(http2.FlagHeadersEndHeaders) {
			m.Count = c.method(m.Stream)
			c.block.Reset()
		}
	case http2.FrameData:
		m.Requests = []Request{{c.methods[m.Stream], payload}}
	case http2.FrameRSTStream:
		m.GivenUp = true
	}
	return m
}

// fragment is the part of a header block that a frame carries.
func fragment(kind http2.FrameType, flags http2.Flags, payload []byte) []byte {
	if kind != http2.FrameHeaders {
		return payload
	}
	if flags.Has(http2.FlagHeadersPadded) {
		payload = payload[1 : len(payload)-int(payload[0])]
	}
	if flags.Has(http2.FlagHeadersPriority) {
		payload = payload[5:]
	}
	return payload
}

// method learns the method of a stream from its header block. One that cannot be read has
// none, and the server ends its connection.
func (c *codec) method(stream uint32) (path string) {
	fields, err := c.fields.DecodeFull(c.block.Bytes())
	if err != nil {
		return ""
	}
	for _, f := range fields {
		if f.Name == ":path" {
			path = f.Value
			c.methods[stream] = path
		}
	}
	return path
}
