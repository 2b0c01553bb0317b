package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// What a server of Redis may announce. The client library makes room for all of it before it comes.
const (
	maxAnnouncedBytes  = 64 << 20 // of one text, such as the list of clients
	maxAnnouncedValues = 1 << 20  // that are still to come, of all lists
	maxAnnouncedDigits = 20       // and a sign
	maxNested          = 32       // lists in lists
	maxLine            = 1 << 20  // bytes of a frame without a length, of which nobody announces the end
)

// dialer opens connections.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// bounded returns a dialer whose connections fail when the server announces more than it may.
func bounded(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: c}, nil
	}
}

// boundedConn reads the frames of RESP2 and RESP3 as they pass.
type boundedConn struct {
	net.Conn
	announced
	err error
}

func (c *boundedConn) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(b)
	if c.err = c.take(b[:n]); c.err != nil {
		return 0, c.err
	}
	return n, err
}

// announced is where a stream of frames is.
type announced struct {
	kind   byte   // of the frame whose line is being read; 0 before it
	number []byte // that follows the kind
	line   int    // how long the line is so far
	skip   int    // bytes of a text that are still to come
	left   []int  // values that are still to come of each list, in which the next is
	values int    // the sum of these
}

// take goes on with the next bytes of the stream, and returns an error if they announce too much.
func (a *announced) take(b []byte) error {
	for len(b) > 0 {
		if a.skip > 0 {
			n := min(a.skip, len(b))
			a.skip, b = a.skip-n, b[n:]
			continue
		}
		c := b[0]
		b = b[1:]
		a.line++
		switch {
		case a.kind == 0:
			a.kind, a.number, a.line = c, a.number[:0], 0
		case a.line >= maxLine:
			return fmt.Errorf("the server's line has no end; more than %d bytes are not read", maxLine)
		case c == '\n':
			if err := a.begin(); err != nil {
				return err
			}
			a.kind = 0
		case c != '\r' && a.counts() && len(a.number) <= maxAnnouncedDigits:
			a.number = append(a.number, c)
		}
	}
	return nil
}

// counts reports whether the line that is being read announces something.
func (a *announced) counts() bool {
	switch a.kind {
	case '$', '=', '!', '*', '~', '>', '%', '|':
		return true
	}
	return false
}

// begin handles the line of a frame.
func (a *announced) begin() error {
	if !a.counts() || len(a.number) == 1 && a.number[0] == '?' { // a stream, of which nobody knows the length
		a.value()
		return nil
	}
	n, err := strconv.Atoi(string(a.number))
	if err != nil || n < -1 {
		return fmt.Errorf("the server announces %q of something, which is no number", a.number)
	}
	switch a.kind {
	case '$', '=', '!':
		if n > maxAnnouncedBytes {
			return fmt.Errorf("the server announces a text of %d bytes; more than %d are not read", n, maxAnnouncedBytes)
		}
		if n >= 0 {
			a.skip = n + len("\r\n")
		}
		a.value()
		return nil
	case '%', '|':
		n = min(n, maxAnnouncedValues+1) * 2
	}
	if n <= 0 {
		a.value()
		return nil
	}
	if a.values += min(n, maxAnnouncedValues+1); a.values > maxAnnouncedValues {
		return fmt.Errorf("the server announces a list of %s values; more than %d are not read", a.number, maxAnnouncedValues)
	}
	if len(a.left) == maxNested {
		return fmt.Errorf("the server announces lists in lists; more than %d are not read", maxNested)
	}
	if a.kind != '|' { // attributes come before a value, and are none
		a.count()
	}
	a.left = append(a.left, n)
	return nil
}

// value notes the end of a value, and of the lists that end with it.
func (a *announced) value() {
	a.count()
	for n := len(a.left); n > 0 && a.left[n-1] == 0; n-- {
		a.left = a.left[:n-1]
	}
}

// count notes a value of the innermost list, which may have begun only.
func (a *announced) count() {
	if n := len(a.left); n > 0 {
		a.left[n-1]--
		a.values--
	}
}
