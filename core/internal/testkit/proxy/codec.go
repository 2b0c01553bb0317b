package proxy

import (
	"bytes"
	"io"
)

// Codec knows the protocol of one connection. Read may be called for both directions at
// once, but not twice for one of them. See is called with what Read has returned before
// Read is called again, and never twice at a time.
type Codec[Q any] interface {
	// Read reads what is passed on at once, or not at all. It returns data or an error.
	Read(d Direction, from io.Reader) ([]byte, error)

	// See tells what that is.
	See(d Direction, data []byte) Message[Q]
}

// Message is what a proxy has to know about what it passes on. The zero value is passed on
// like the rest and means nothing.
type Message[Q any] struct {
	Count    string // the name by which it is counted; empty counts nothing
	Requests []Q    // what a client asks for
	Stream   uint32 // what requests and their replies have in common, if a connection carries several
	GivenUp  bool   // the client will not hear the reply on this stream
	Reply    bool   // it answers the requests on its stream
	Failed   bool   // as a reply: they were not executed
	Push     bool   // a server may have sent it without being asked
	Prompt   bool   // it is never delayed
}

// Chunks reads what comes at once, for a codec which needs no more exact limits.
type Chunks struct{ buffers [2][64 << 10]byte }

// Read reads what there is.
func (c *Chunks) Read(d Direction, from io.Reader) ([]byte, error) {
	buffer := c.buffers[d][:]
	n, err := from.Read(buffer)
	if n > 0 { // an error comes again
		return bytes.Clone(buffer[:n]), nil
	}
	return nil, err
}

// Redis is the codec of Redis. A request is what a client has sent in one piece, and
// whatever goes to a client that has subscribed to a channel is a push.
func Redis() Codec[[]byte] { return &redis{} }

type redis struct {
	Chunks
	subscribed bool
}

func (r *redis) See(d Direction, data []byte) Message[[]byte] {
	if d == ToClient {
		return Message[[]byte]{Reply: true, Push: r.subscribed}
	}
	if bytes.Contains(bytes.ToLower(data), []byte("\r\nsubscribe\r\n")) {
		r.subscribed = true
	}
	return Message[[]byte]{Requests: [][]byte{data}}
}
