package middleware

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestNestedUseOfAKeyIsRefusedOrCounted(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			logtest.Capture(t)
			e, _ := routetest.Open(t)
			r := newRouter()
			r.ContextWithFallback = fallback
			p := core.Policy{Key: "k", Wait: core.Forever}
			again := p
			again.Reentrant = true
			r.GET("/twice", Lock(e, p), Lock(e, p), tellKey)
			r.GET("/reentrant", Lock(e, p), Lock(e, again), tellKey)
			r.GET("/context", Lock(e, p), func(c *gin.Context) {
				if err := e.Do(c, p, func(context.Context) error { return nil }); !errors.Is(err, core.ErrDeadlock) {
					t.Errorf("got %v; want ErrDeadlock", err)
				}
			})
			s := routetest.Serve(t, r)
			routetest.Get(t, s, "/twice").MustBe(t, 500, "LOCK_DEADLOCK")
			routetest.Get(t, s, "/reentrant").MustBe(t, 200, "")
			routetest.Get(t, s, "/context").MustBe(t, 200, "")
			if !routetest.Free(t, e, "k") {
				t.Error("the key stays locked")
			}
		})
	}
}

func TestResponseCanBeFlushedAndHijacked(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	read := make(chan struct{})
	r.GET("/flush", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) {
		_, _ = c.Writer.WriteString("first\n")
		c.Writer.Flush()
		<-read
		_, _ = c.Writer.WriteString("second\n")
	})
	r.GET("/hijack", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nown")
	})
	s := routetest.Serve(t, r)
	res, err := s.Client().Get(s.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q, %v before the handler's end", line, err)
	}
	close(read)
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if a := routetest.Get(t, s, "/hijack"); a.Body != "own" {
		t.Errorf("got %q from the hijacked connection", a.Body)
	}
}
