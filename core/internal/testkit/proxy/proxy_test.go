package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is a protocol of lines: a client sends a kind of request, and the server sends it
// back. What begins with an exclamation mark is a failure as a reply, with a plus a push.
type words struct{ lines [2]*bufio.Reader }

func (w *words) Read(d proxy.Direction, from io.Reader) ([]byte, error) {
	if w.lines[d] == nil {
		w.lines[d] = bufio.NewReader(from)
	}
	line, err := w.lines[d].ReadString('\n')
	if err != nil {
		return nil, err
	}
	return []byte(line), nil
}

func (w *words) See(d proxy.Direction, data []byte) (m proxy.Message[string]) {
	line := strings.TrimSpace(string(data))
	switch {
	case d == proxy.ToServer:
		m.Requests, m.Count, m.GivenUp = []string{strings.Trim(line, "!")}, line, line == "never mind"
	case strings.HasPrefix(line, "+"):
		m.Push = true
	default:
		m.Reply, m.Failed = true, strings.HasPrefix(line, "!")
	}
	return m
}

// begin starts a proxy to a server that sends everything back.
func begin(t *testing.T, o proxy.Options[string]) *proxy.Proxy[string] {
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
	o.Codec = func() proxy.Codec[string] { return new(words) }
	return proxy.Start(t, l.Addr().String(), o)
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *proxy.Proxy[string]) *client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

const (
	soon = 2 * time.Minute
	some = 100 * time.Millisecond
)

// say sends a line and returns what comes within that long.
func (c *client) say(t *testing.T, line string, patience time.Duration) (string, error) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
	return c.hear(patience)
}

func (c *client) hear(patience time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// echoes fails the test unless the server is heard.
func (c *client) echoes(t *testing.T, line string) {
	t.Helper()
	if got, err := c.say(t, line, soon); err != nil || got != line {
		t.Fatalf("the answer to %q is %q, %v", line, got, err)
	}
}

// closed fails the test unless the connection has been closed.
func (c *client) closed(t *testing.T, line string) {
	t.Helper()
	if got, err := c.say(t, line, soon); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the answer to %q is %q, %v, and the connection is open", line, got, err)
	}
}

func TestDropReplyClosesTheConnectionInItsPlace(t *testing.T) {
	p := begin(t, proxy.Options[string]{})
	c, other := dial(t, p), dial(t, p)
	dropped := p.DropReply(func(r string) bool { return r == "take" })
	c.echoes(t, "look")
	if dropped() {
		t.Error("the reply to another request was lost")
	}
	c.closed(t, "take")
	if !dropped() {
		t.Error("no reply was lost")
	}
	other.echoes(t, "take")
	if n := p.Count("take"); n != 2 {
		t.Errorf("%d requests were counted, want 2", n)
	}
}

func TestDropReplyWaitsForARequestThatIsExecuted(t *testing.T) {
	p := begin(t, proxy.Options[string]{Executed: true})
	dropped := p.DropReply(func(r string) bool { return r == "take" })
	a, b := dial(t, p), dial(t, p)
	a.echoes(t, "!take")
	resume := p.Stall()
	if line, err := a.say(t, "take", some); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the answer is %q, %v", line, err)
	}
	p.Cut() // before the reply
	resume()
	if line, err := a.hear(soon); err == nil || dropped() {
		t.Fatalf("the answer is %q", line)
	}
	_ = b.Close()
	c := dial(t, p)
	for !dropped() { // the end of the first connection may take a moment
		if line, err := c.say(t, "take", soon); err != nil && !dropped() {
			t.Fatalf("the answer is %q, %v", line, err)
		}
	}
}

func TestRequestGivenUpCountsAsDropped(t *testing.T) {
	p := begin(t, proxy.Options[string]{Patience: soon})
	dropped := p.DropReply(func(r string) bool { return r == "take" })
	c := dial(t, p)
	defer p.BlackHole(proxy.ToClient)()
	for _, line := range []string{"take", "never mind"} {
		if _, err := io.WriteString(c, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if !dropped() {
		t.Error("a request that was given up is waited for")
	}
}

func TestRequestWhoseConnectionEndsBeforeItsReplyCountsAsDropped(t *testing.T) {
	p := begin(t, proxy.Options[string]{Patience: soon})
	dropped := p.DropReply(func(r string) bool { return r == "take" })
	c := dial(t, p)
	resume := p.Stall()
	defer resume()
	if line, err := c.say(t, "take", some); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the answer is %q, %v", line, err)
	}
	_ = c.Close()
	resume()
	if !dropped() {
		t.Error("the reply to a request whose client has gone is waited for")
	}
}

func TestLosePushesLosesNoReplies(t *testing.T) {
	p := begin(t, proxy.Options[string]{})
	c := dial(t, p)
	restore := p.LosePushes()
	if line, err := c.say(t, "+push", some); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a push arrives: %q, %v", line, err)
	}
	c.echoes(t, "look")
	restore()
	c.echoes(t, "+push")
}

func TestBlackHolesOfBothDirectionsAreApart(t *testing.T) {
	p := begin(t, proxy.Options[string]{})
	c := dial(t, p)
	up, down := p.BlackHole(proxy.ToServer), p.BlackHole(proxy.ToClient)
	for _, restore := range []func(){up, down} {
		if line, err := c.say(t, "a", some); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the answer is %q, %v", line, err)
		}
		restore()
	}
	c.echoes(t, "b")
}

func TestBunchesArriveTogether(t *testing.T) {
	const apart = 50 * time.Millisecond
	began := time.Now()
	p := begin(t, proxy.Options[string]{})
	p.Set(proxy.State{Bunch: apart})
	dial(t, p).echoes(t, "a")
	if took := time.Since(began); took < apart {
		t.Errorf("the first bunch arrives after %v, want %v at least", took, apart)
	}
}
