package main

import (
	"bytes"
	"strconv"
	"sync/atomic"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

// requests counts the commands that a Redis client sends on a connection, of which it
// gets all bytes in pieces of any length. What a script calls inside the server is no
// command of the client's, though Redis's own statistics count it as one.
// https://redis.io/docs/latest/develop/reference/protocol-spec/
type requests struct {
	proxy.Chunks
	count *atomic.Int64 // nil does not count
	line  []byte        // of a length, as far as it has come
	left  int           // arguments of the command that are still to come
	skip  int           // bytes of an argument, and its end of line, that are still to come
}

// See reads what goes to the server.
func (r *requests) See(d proxy.Direction, data []byte) proxy.Message[struct{}] {
	if d == proxy.ToServer && r.count != nil {
		r.read(data)
	}
	return proxy.Message[struct{}]{}
}

func (r *requests) read(b []byte) {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			r.skip -= n
			b = b[n:]
			if r.skip == 0 {
				r.argument()
			}
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			r.line = append(r.line, b...)
			return
		}
		r.length(bytes.TrimSpace(append(r.line, b[:end]...)))
		r.line, b = r.line[:0], b[end+1:]
	}
}

func (r *requests) length(line []byte) {
	if len(line) == 0 {
		return
	}
	n, err := strconv.Atoi(string(line[1:]))
	switch {
	case err == nil && line[0] == '*':
		r.left = n
	case err == nil && line[0] == '$':
		r.skip = n + len("\r\n")
	default:
		r.count.Add(1) // a command in a line of its own
	}
}

func (r *requests) argument() {
	if r.left--; r.left == 0 {
		r.count.Add(1)
	}
}
