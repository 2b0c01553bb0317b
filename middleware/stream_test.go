package middleware_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

func TestEventStreamIsFlushedEventByEventUnderTheLock(t *testing.T) {
	const events = 3
	for _, p := range []protocol{http1, http2} {
		t.Run(string(p), func(t *testing.T) {
			s := newSite(t)
			next := make(chan int, 1)
			r := newRouter()
			r.GET("/", middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
				c.Stream(func(io.Writer) bool {
					select {
					case i, ok := <-next:
						if ok {
							c.SSEvent("stock", i)
						}
						return ok
					case <-c.Request.Context().Done():
						return false
					}
				})
			})
			srv := serve(t, p, r)
			next <- 0 // the headers come with the first event
			res, err := srv.Client().Do(newRequest(t, srv, http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }() // read to its end
			if got := res.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
				t.Errorf("the Content-Type is %q", got)
			}
			lines := bufio.NewReader(res.Body)
			for i := range events {
				if i > 0 {
					next <- i
				}
				// The handler waits for the next one, so that only a flush can
				// have brought this one.
				var got strings.Builder
				for !strings.HasSuffix(got.String(), "\n\n") {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("%v after %q", err, got.String())
					}
					got.WriteString(line)
				}
				if want := fmt.Sprintf("event:stock\ndata:%d\n\n", i); got.String() != want {
					t.Errorf("got %q; want %q", got.String(), want)
				}
				s.mustBeTaken(t, "k", fmt.Sprintf("after event %d", i))
			}
			close(next)
			if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
				t.Errorf("got %q, %v after the last event", rest, err)
			}
			s.mustBeFree(t, "k", "after the stream's end")
		})
	}
}

func TestStreamWhoseClientHasGoneEndsAndReleases(t *testing.T) {
	for _, p := range []protocol{http1, http2} {
		t.Run(string(p), func(t *testing.T) {
			s := newSite(t)
			over := make(chan struct{})
			r := newRouter()
			r.GET("/", func(c *gin.Context) { c.Next(); close(over) }, middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
				first := true
				c.Stream(func(io.Writer) bool {
					if !first {
						await(t, c.Request.Context().Done(), "the end of the request's context")
					}
					first = false
					c.SSEvent("stock", "1")
					return true // until gin sees that the client has gone
				})
			})
			srv := serve(t, p, r)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			res, err := srv.Client().Do(newRequest(t, srv, http.MethodGet, "/", nil).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }() // cut off by hangUp
			s.mustBeTaken(t, "k", "while the stream runs")
			hangUp()
			await(t, over, "the end of the request")
			s.mustBeFree(t, "k", "after the stream's end")
		})
	}
}

// A hijacked connection lives on when the handler has returned; the lock does not.
func TestHijackedConnectionOutlivesTheLock(t *testing.T) {
	for _, tc := range []struct {
		name string
		lost bool
	}{{name: "lease ends with the handler"}, {name: "lease is lost before", lost: true}} {
		t.Run(tc.name, func(t *testing.T) {
			quiet(t)
			s := newSite(t)
			r := newRouter()
			taken, over := make(chan net.Conn, 1), make(chan struct{})
			r.GET("/", func(c *gin.Context) { c.Next(); close(over) }, middleware.Lock(s.locks, core.Policy{Key: "k"}), func(c *gin.Context) {
				conn, _, err := c.Writer.Hijack()
				if err != nil {
					t.Error(err)
				}
				s.mustBeTaken(t, "k", "while the handler has the connection")
				if tc.lost {
					s.store.Expire("test/k")
					await(t, c.Request.Context().Done(), "the end of the handler's context")
				}
				taken <- conn
			})
			srv := serve(t, http1, r)
			client := dial(t, srv.Listener.Addr(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			conn := await(t, taken, "the hijacked connection")
			await(t, over, "the end of the request")
			s.mustBeFree(t, "k", "after the handler's return")
			if _, err := io.WriteString(conn, "mine"); err != nil {
				t.Error(err)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(client); string(got) != "mine" || err != nil {
				t.Errorf("the connection brings %q, %v; want what its owner wrote alone", got, err)
			}
		})
	}
}

// dial opens a connection and sends text.
func dial(t *testing.T, to net.Addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial(to.Network(), to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // often closed before
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}
