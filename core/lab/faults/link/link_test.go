package link_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/lab/faults/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that answers each line with the same one.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close() //nolint:errcheck // the client has gone
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func begin(t *testing.T) (*link.Link, *client) {
	t.Helper()
	l, err := link.New(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, dial(t, l)
}

func dial(t *testing.T, l *link.Link) *client {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// say sends a line and returns what comes within that long.
func (c *client) say(t *testing.T, line string, patience time.Duration) (string, error) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\r\n"); err != nil {
		t.Fatal(err)
	}
	return c.hear(patience)
}

func (c *client) hear(patience time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := c.lines.ReadString('\n')
	return line, err
}

const (
	soon = 2 * time.Minute
	some = 100 * time.Millisecond
)

func TestLinkPassesOn(t *testing.T) {
	_, c := begin(t)
	if line, err := c.say(t, "a", soon); err != nil || line != "a\r\n" {
		t.Errorf("the answer is %q, %v", line, err)
	}
}

func TestDelayIsAddedInBothDirections(t *testing.T) {
	l, c := begin(t)
	l.Set(link.State{Delay: [2]time.Duration{30 * time.Millisecond, 50 * time.Millisecond}})
	began := time.Now()
	if _, err := c.say(t, "a", soon); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 80*time.Millisecond {
		t.Errorf("there and back took %v, want 80 ms at least", took)
	}
}

func TestHoleLosesForGoodAndResetsInTheEnd(t *testing.T) {
	for _, d := range []link.Direction{link.ToServer, link.ToClient} {
		l, c := begin(t)
		s := link.State{}
		s.Hole[d] = true
		l.Set(s)
		if line, err := c.say(t, "a", some); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: the answer is %q, %v", d, line, err)
		}
		l.Set(link.State{})
		if line, err := c.hear(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: the connection is open: %q, %v", d, line, err)
		}
		if line, err := dial(t, l).say(t, "b", soon); err != nil || line != "b\r\n" {
			t.Errorf("direction %d: a new connection's answer is %q, %v", d, line, err)
		}
	}
}

func TestStallKeepsAndPassesOnLater(t *testing.T) {
	l, c := begin(t)
	l.Set(link.State{Stall: true})
	if line, err := c.say(t, "a", some); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the answer is %q, %v", line, err)
	}
	l.Set(link.State{})
	if line, err := c.hear(soon); err != nil || line != "a\r\n" {
		t.Errorf("the answer after it is %q, %v", line, err)
	}
}

func TestDeafLosesWhatGoesToSubscribers(t *testing.T) {
	l, c := begin(t)
	subscriber := dial(t, l)
	if _, err := subscriber.say(t, "*2\r\n$9\r\nsubscribe\r\n$1\r\nx", soon); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the rest of it
		if _, err := subscriber.hear(soon); err != nil {
			t.Fatal(err)
		}
	}
	l.Set(link.State{Deaf: true})
	if line, err := subscriber.say(t, "push", some); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the subscriber got %q, %v", line, err)
	}
	if line, err := c.say(t, "a", soon); err != nil || line != "a\r\n" {
		t.Errorf("the other one got %q, %v", line, err)
	}
}

func TestCutEndsConnectionsAndLetsNewOnesIn(t *testing.T) {
	l, c := begin(t)
	if _, err := c.say(t, "a", soon); err != nil {
		t.Fatal(err)
	}
	l.Cut()
	if line, err := c.hear(soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is open: %q, %v", line, err)
	}
	if line, err := dial(t, l).say(t, "b", soon); err != nil || line != "b\r\n" {
		t.Errorf("a new one: %q, %v", line, err)
	}
}

// accepted is a server that hands each of its connections over.
func accepted(t *testing.T) (addr string, conns <-chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	all := make(chan net.Conn, 1)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all <- c
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
	})
	return l.Addr().String(), all
}

func TestServerHearsThatItsClientHasClosedWhenTheLinkLetsItThrough(t *testing.T) {
	for name, s := range map[string]link.State{
		"at once": {}, "slowly": {Slow: some}, "in the end": {Hole: [2]bool{link.ToServer: true}}, "when it goes on": {Stall: true},
	} {
		t.Run(name, func(t *testing.T) {
			target, conns := accepted(t)
			l, err := link.New(target)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() //nolint:errcheck // it has no connections any more
			c := dial(t, l)
			server := <-conns
			defer server.Close() //nolint:errcheck // the client has gone
			l.Set(s)
			closed := time.Now()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if s.Stall || s.Hole[link.ToServer] {
				_ = server.SetReadDeadline(time.Now().Add(some))
				if _, err := server.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("soon after the client has closed the server reads %v", err)
				}
				l.Set(link.State{})
			}
			_ = server.SetReadDeadline(time.Now().Add(soon))
			if _, err := server.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("when it should have heard the server reads %v", err)
			}
			if took := time.Since(closed); took < s.Slow {
				t.Errorf("the server heard after %v, want %v at least", took, s.Slow)
			}
		})
	}
}
