package surfacetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// Call is a call of a method, with {} where the value stands: once in the metadata, or
// nowhere if the messages hold it.
type Call struct {
	Method   string            // "/stock.v1.Stock/Deduct"
	Metadata map[string]string // may be nil
	Messages [][]byte          // encoded; each is sent alone, and all of them in one stream
}

// GRPC tries the server that listens at addr, without TLS, with each of the calls in all
// its forms: the names of methods that a lenient server takes for the same, values of
// metadata as in [HTTP], messages in other frames than a client's. It speaks HTTP/2 itself,
// since a client's library would correct what it sends.
func GRPC(t *testing.T, addr string, p *Probe, calls ...Call) {
	t.Helper()
	for _, c := range calls {
		t.Run(c.Method, func(t *testing.T) {
			for _, fault := range call(addr, p, c) {
				t.Error(fault)
			}
		})
	}
}

// call sends a call in all its forms, and returns what was wrong.
func call(addr string, p *Probe, c Call) (found []string) {
	for _, s := range c.streams() {
		p.trying(s.String())
		if err := s.send(addr); err != nil {
			found = append(found, fmt.Sprintf("%s: no answer: %v", s, err))
		}
	}
	return append(found, p.judge()...)
}

// stream is a call as it is sent.
type stream struct {
	path   string
	header [][2]string
	frames [][]byte // of data
}

func (s stream) String() string {
	return fmt.Sprintf("call of %q with %q and %d frames of data, %.100q", s.path, s.header, len(s.frames), bytes.Join(s.frames, nil))
}

// streams returns all that is sent for a call.
func (c Call) streams() []stream {
	var header [][2]string
	at := -1
	for _, name := range slices.Sorted(maps.Keys(c.Metadata)) {
		if strings.Contains(c.Metadata[name], hole) {
			at = len(header)
		}
		header = append(header, [2]string{name, c.Metadata[name]})
	}
	with := func(value string) [][2]string {
		if at < 0 {
			return header
		}
		filled := slices.Clone(header)
		filled[at][1] = strings.Replace(filled[at][1], hole, value, 1)
		return filled
	}
	var frames [][][]byte // by what is sent
	all := make([][]byte, 0, len(c.Messages))
	for _, m := range c.Messages {
		frames = append(frames, [][]byte{prefixed(m)})
		all = append(all, prefixed(m))
	}
	frames = append(frames, all)

	var streams []stream
	for _, f := range frames {
		for _, path := range c.paths() {
			streams = append(streams, stream{path, with("1"), f})
			if len(header) > 0 {
				streams = append(streams, stream{path, nil, f})
			}
		}
	}
	for _, f := range [][][]byte{
		{bytes.Join(all, nil)},                  // all messages in one frame
		split(bytes.Join(all, nil)),             // a byte in each
		{bytes.Join(all, nil), {0, 0, 0}},       // an unfinished one behind
		append(slices.Clone(all), all...),       // all twice
		{append([]byte{1}, all[0][1:]...)},      // said to be compressed
		{all[0][:len(all[0])-1]},                // too short
		{{0, 0, 0, 0, 0}},                       // an empty message
		{{0, 0xff, 0xff, 0xff, 0xff}},           // an enormous one
		{},                                      // none
		{{}, all[0], {}},                        // empty frames
		{prefixed(bytes.Join(c.Messages, nil))}, // fields that come twice
		{prefixed(bytes.Repeat(c.Messages[0], 3))},
	} {
		streams = append(streams, stream{c.Method, with("1"), f})
	}
	if at < 0 {
		return streams
	}
	for _, value := range spellings {
		for _, w := range inHeader(value) {
			streams = append(streams, stream{c.Method, with(w.text), all})
		}
	}
	name := header[at][0]
	for _, more := range [][][2]string{{{name, "2"}}, {{name, ""}}, {{strings.ToUpper(name), "2"}}, {{name + "-bin", "Mg"}}} {
		streams = append(streams,
			stream{c.Method, append(with("1"), more...), all},
			stream{c.Method, append(slices.Clone(more), with("1")...), all})
	}
	return append(streams, stream{c.Method, with("1, 2"), all}, stream{c.Method, with("1,2"), all})
}

// paths are names that somebody may take for the method's.
func (c Call) paths() []string {
	bare := strings.TrimPrefix(c.Method, "/")
	service, method, _ := strings.Cut(bare, "/")
	return []string{
		c.Method, bare, "/" + c.Method, "//" + c.Method, c.Method + "/", "/" + service + "//" + method, strings.ToLower(c.Method), strings.ToUpper(c.Method),
		c.Method + "?x=1", c.Method + "#x", c.Method + ";x", c.Method + "%20", c.Method + "\x00", " " + c.Method, c.Method + " ", "/." + c.Method, "/x/.." + c.Method,
		"/" + service + "%2F" + method, fmt.Sprintf("/%%%02x%s/%s", service[0], service[1:], method), fmt.Sprintf("/%s/%%%02x%s", service, method[0], method[1:]),
		"http://surfacetest" + c.Method, "/" + service + "." + method, "/" + service, "/", "", "*", "\\" + bare,
	}
}

// prefixed is a message as gRPC sends it.
func prefixed(m []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

func split(b []byte) [][]byte {
	var each [][]byte
	for i := range b {
		each = append(each, b[i:i+1])
	}
	return each
}

// The frames of HTTP/2 (RFC 9113) that a call needs.
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
	frameGoAway   = 7

	flagEnd    = 1 // of a stream; of settings and pings: an acknowledgement
	flagWhole  = 4 // of headers
	streamID   = 1
	frameLimit = 16 << 10
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// send sends the call on a connection of its own, and waits for its end.
func (s stream) send(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the answer is in, or an error
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	var fields []byte
	for _, f := range append([][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", s.path}, {":authority", "surfacetest"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	}, s.header...) {
		fields = append(fields, 0) // a literal field (RFC 7541, section 6.2.2)
		for _, text := range f {
			fields = append(appendLength(fields, len(text)), text...)
		}
	}
	out := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, nil)...)
	out = append(out, frame(frameHeaders, flagWhole, streamID, fields)...)
	for _, data := range s.frames {
		for ; len(data) > frameLimit; data = data[frameLimit:] {
			out = append(out, frame(frameData, 0, streamID, data[:frameLimit])...)
		}
		out = append(out, frame(frameData, 0, streamID, data)...)
	}
	out = append(out, frame(frameData, flagEnd, streamID, nil)...)
	// A server may answer before it has read it all, and hang up.
	_, writing := conn.Write(out)
	if err := untilEnd(conn); err != nil {
		return errors.Join(err, writing)
	}
	return nil
}

// appendLength appends the length of a text that follows as it is.
func appendLength(b []byte, n int) []byte {
	const prefix = 1<<7 - 1
	if n < prefix {
		return append(b, byte(n))
	}
	b = append(b, prefix)
	for n -= prefix; n >= 1<<7; n >>= 7 {
		b = append(b, byte(n)|1<<7)
	}
	return append(b, byte(n))
}

// untilEnd reads until the server has ended the call, or the connection for its sake.
func untilEnd(conn net.Conn) error {
	var head [9]byte
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return err
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(conn, payload); err != nil {
			return err
		}
		kind, flags := head[3], head[4]
		var answer []byte
		switch {
		case kind == frameGoAway, kind == frameReset, (kind == frameHeaders || kind == frameData) && flags&flagEnd != 0:
			return nil
		case kind == frameSettings && flags&flagEnd == 0:
			answer = frame(frameSettings, flagEnd, 0, nil)
		case kind == framePing && flags&flagEnd == 0:
			answer = frame(framePing, flagEnd, 0, payload)
		}
		if _, err := conn.Write(answer); err != nil && len(answer) > 0 {
			return err
		}
	}
}
