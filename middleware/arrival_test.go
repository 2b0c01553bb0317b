package middleware

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// dial opens a connection to s and sends text.
func dial(t *testing.T, addr net.Addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // often closed before
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestClientThatHangsUpLeavesTheQueue(t *testing.T) {
	const body = `{"sku":"a"}`
	for name, key := range map[string]string{"body not needed": "stock:{path.sku}", "body needed": "stock:{body.sku}"} {
		t.Run(name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			held, err := e.Acquire(t.Context(), core.Policy{Key: "stock:a"})
			if err != nil {
				t.Fatal(err)
			}
			arrived, status := make(chan struct{}), make(chan int)
			r := newRouter()
			r.POST("/:sku", func(c *gin.Context) {
				close(arrived)
				c.Next()
				status <- c.Writer.Status()
			}, Lock(e, core.Policy{Key: key, Wait: core.Forever}), func(*gin.Context) { t.Error("the handler runs") })
			s := routetest.Serve(t, r)
			conn := routetest.Dial(t, s, fmt.Sprintf(
				"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			<-arrived
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if got := <-status; got != 499 {
				t.Errorf("status is %d; want 499", got)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if !routetest.Free(t, e, "stock:a") {
				t.Error("the request that is over holds the lock")
			}
		})
	}
}

// watchedBody tells when it is first read.
type watchedBody struct {
	io.ReadCloser
	read func()
}

func (b watchedBody) Read(p []byte) (int, error) {
	b.read()
	return b.ReadCloser.Read(p)
}

func TestSlowUploadHoldsNoLock(t *testing.T) {
	e, _ := routetest.Open(t)
	reading := make(chan struct{})
	r := newRouter()
	r.POST("/", func(c *gin.Context) {
		if c.GetHeader("X-Slow") != "" {
			c.Request.Body = watchedBody{c.Request.Body, sync.OnceFunc(func() { close(reading) })}
		}
	}, Lock(e, core.Policy{Key: "k", Wait: core.Forever}), func(c *gin.Context) {
		body, err := c.GetRawData()
		c.String(200, "%s %v", body, err)
	})
	s := routetest.Serve(t, r)
	conn := routetest.Dial(t, s, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: 1\r\nConnection: close\r\nContent-Length: 8\r\n\r\nfirs")
	<-reading
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "fast")); a.Body != "fast <nil>" {
		t.Errorf("got %q", a.Body)
	}
	if _, err := io.WriteString(conn, "t_la"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasSuffix(string(answer), "first_la <nil>") {
		t.Errorf("got %q, %v", answer, err)
	}
}

func TestBodyThatDoesNotComeIsRefused(t *testing.T) {
	e, _ := routetest.Open(t)
	hangUp := func(t *testing.T, conn net.Conn) {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
	}
	// The server's ReadTimeout, at an instant that the test can know.
	timeout := func(c *gin.Context) {
		if err := http.NewResponseController(c.Writer).SetReadDeadline(time.Now()); err != nil {
			t.Error(err)
		}
	}
	for _, key := range []string{"k", "{body.x}"} {
		for _, tc := range []struct {
			name   string
			before gin.HandlerFunc
			after  func(*testing.T, net.Conn)
			status string
		}{
			{name: "broken off", before: func(*gin.Context) {}, after: hangUp, status: "499"},
			{name: "too slow", before: timeout, after: func(*testing.T, net.Conn) {}, status: "408"},
		} {
			t.Run(tc.name+", key "+key, func(t *testing.T) {
				r := newRouter()
				r.POST("/", tc.before, Lock(e, core.Policy{Key: key}), func(*gin.Context) { t.Error("the handler runs") })
				s := routetest.Serve(t, r)
				conn := routetest.Dial(t, s, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{")
				tc.after(t, conn)
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.status+" ") {
					t.Errorf("got %q, %v; want %s", answer, err, tc.status)
				}
			})
		}
	}
}

func TestHTTP2ClientThatCancelsLeavesTheQueue(t *testing.T) {
	e, _ := routetest.Open(t)
	held, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	arrived, status := make(chan struct{}), make(chan int)
	r := newRouter()
	r.POST("/", func(c *gin.Context) {
		if c.Request.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", c.Request.Proto)
		}
		close(arrived)
		c.Next()
		status <- c.Writer.Status()
	}, Lock(e, core.Policy{Key: "k", Wait: core.Forever}), func(*gin.Context) { t.Error("the handler runs") })
	s := httptest.NewUnstartedServer(r)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(t.Context())
	req := routetest.NewRequest(t, s, http.MethodPost, "/", "text").WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := s.Client().Do(req)
		if err == nil {
			res.Body.Close()
			t.Error("the cancelled request is answered")
		}
	}()
	<-arrived
	cancel()
	if got := <-status; got != 499 {
		t.Errorf("status is %d; want 499", got)
	}
	<-done
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if !routetest.Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}
