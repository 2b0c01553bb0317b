package httplock

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
)

// Answered reports whether the handler behind the lock has answered, when w is
// what a function given with [WithErrorHandler] is called with: by a status, by
// a part of a body, or by hijacking the connection. It is false for any other w.
func Answered(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ answered() bool }:
			return t.answered()
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// writer notes what is written to the ResponseWriter inside. It has the methods
// that work on every ResponseWriter; see [writer.as].
type writer struct {
	inner    http.ResponseWriter
	status   int // 0 until an answer is begun
	hijacked bool
	encoding []string // of whatever is in front of the lock
}

func (w *writer) answered() bool { return w.status != 0 || w.hijacked }

// begin notes that an answer begins with this status, unless one has.
func (w *writer) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *writer) Header() http.Header { return w.inner.Header() }

func (w *writer) WriteHeader(status int) {
	// What comes before the answer is none: 100 Continue, 103 Early Hints.
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.inner.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.inner.Write(p)
}

func (w *writer) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.inner, s)
}

// ReadFrom lets net/http send a file without copying it.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	from, ok := w.inner.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	n, err := from.ReadFrom(src)
	if n > 0 {
		w.begin(http.StatusOK)
	}
	return n, err
}

// Unwrap leads an http.ResponseController on.
func (w *writer) Unwrap() http.ResponseWriter { return control{w} }

// control is what an http.ResponseController finds inside a writer: what ends
// in an answer goes through the writer, and the rest to what the writer holds.
type control struct{ w *writer }

func (c control) Header() http.Header         { return c.w.Header() }
func (c control) Write(p []byte) (int, error) { return c.w.Write(p) }
func (c control) WriteHeader(status int)      { c.w.WriteHeader(status) }
func (c control) Unwrap() http.ResponseWriter { return c.w.inner }
func (c control) answered() bool              { return c.w.answered() }

// FlushError fails with http.ErrNotSupported if nothing inside can flush.
func (c control) FlushError() error {
	before := c.w.status
	c.w.begin(http.StatusOK)
	err := http.NewResponseController(c.w.inner).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		c.w.status = before
	}
	return err
}

// Hijack fails with http.ErrNotSupported if nothing inside can be hijacked.
func (c control) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(c.w.inner).Hijack()
	c.w.hijacked = c.w.hijacked || err == nil
	return conn, rw, err
}

func (w *writer) flush() {
	w.begin(http.StatusOK)
	w.inner.(http.Flusher).Flush()
}

func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.inner.(http.Hijacker).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

func (w *writer) push(target string, o *http.PushOptions) error {
	return w.inner.(http.Pusher).Push(target, o)
}

// as returns w with those of http.Flusher, http.Hijacker and http.Pusher that
// what it holds has: handlers ask for them, and do something else without.
func (w *writer) as() http.ResponseWriter {
	_, f := w.inner.(http.Flusher)
	_, h := w.inner.(http.Hijacker)
	_, p := w.inner.(http.Pusher)
	switch {
	case f && h && p:
		return flushHijackPush{flushHijack{flusher{w}}}
	case f && h:
		return flushHijack{flusher{w}}
	case f && p:
		return flushPush{flusher{w}}
	case h && p:
		return hijackPush{hijacker{w}}
	case f:
		return flusher{w}
	case h:
		return hijacker{w}
	case p:
		return pusher{w}
	}
	return w
}

type (
	flusher         struct{ *writer }
	hijacker        struct{ *writer }
	pusher          struct{ *writer }
	flushHijack     struct{ flusher }
	flushPush       struct{ flusher }
	hijackPush      struct{ hijacker }
	flushHijackPush struct{ flushHijack }
)

func (w flusher) Flush() { w.flush() }

// FlushError keeps the error that an http.ResponseController asks for.
func (w flusher) FlushError() error { return control{w.writer}.FlushError() }

func (w hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w flushHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w pusher) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w flushPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w hijackPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }

func (w flushHijackPush) Push(target string, o *http.PushOptions) error { return w.push(target, o) }
