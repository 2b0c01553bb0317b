package httplock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestLeaseThatEndsWhileTheHandlerRuns(t *testing.T) {
	short := core.Policy{Key: "k", MaxHold: 10 * time.Millisecond}
	for _, tc := range []struct {
		name    string
		policy  core.Policy
		expire  bool
		handler func(w http.ResponseWriter, ended func())
		status  int
		code    string
		body    string
		cause   error
	}{
		{
			name: "MaxHold, nothing written", policy: short, cause: core.ErrMaxHold, status: 500, code: "LOCK_MAX_HOLD",
			handler: func(_ http.ResponseWriter, ended func()) { ended() },
		},
		{
			name: "lost, nothing written", policy: core.Policy{Key: "k"}, expire: true, cause: core.ErrLost, status: 500, code: "LOCK_LOST",
			handler: func(_ http.ResponseWriter, ended func()) { ended() },
		},
		{
			name: "lost, early hints sent", policy: core.Policy{Key: "k"}, expire: true, cause: core.ErrLost, status: 500, code: "LOCK_LOST",
			handler: func(w http.ResponseWriter, ended func()) { w.WriteHeader(http.StatusEarlyHints); ended() },
		},
		{
			name: "headers set for an answer that did not come", policy: short, cause: core.ErrMaxHold, status: 500, code: "LOCK_MAX_HOLD",
			handler: func(w http.ResponseWriter, ended func()) {
				w.Header().Set("Content-Length", "3")
				w.Header().Set("ETag", "x")
				ended()
			},
		},
		{
			name: "written before the end", policy: core.Policy{Key: "k"}, expire: true, cause: core.ErrLost, status: 200, body: "mine",
			handler: func(w http.ResponseWriter, ended func()) { _, _ = io.WriteString(w, "mine"); ended() },
		},
		{
			name: "written after the end", policy: short, cause: core.ErrMaxHold, status: 202, body: "mine",
			handler: func(w http.ResponseWriter, ended func()) {
				ended()
				w.WriteHeader(http.StatusAccepted)
				_, _ = w.Write([]byte("mine"))
			},
		},
		{
			name: "status alone", policy: short, cause: core.ErrMaxHold, status: 204,
			handler: func(w http.ResponseWriter, ended func()) { w.WriteHeader(http.StatusNoContent); ended() },
		},
		{
			name: "flushed", policy: short, cause: core.ErrMaxHold, status: 200,
			handler: func(w http.ResponseWriter, ended func()) { w.(http.Flusher).Flush(); ended() },
		},
		{
			name: "flushed by a controller", policy: short, cause: core.ErrMaxHold, status: 200,
			handler: func(w http.ResponseWriter, ended func()) { _ = http.NewResponseController(w).Flush(); ended() },
		},
		{
			name: "copied", policy: short, cause: core.ErrMaxHold, status: 200, body: "mine",
			handler: func(w http.ResponseWriter, ended func()) {
				_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("mine"))
				ended()
			},
		},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tc.name, http2), func(t *testing.T) {
				e, d := routetest.Open(t)
				logged := logtest.Capture(t)
				cause := make(chan error, 1)
				s := routetest.Serve(t, Lock(e, tc.policy)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.handler(w, func() {
						if tc.expire {
							d.Expire("test/k")
						}
						<-r.Context().Done()
						cause <- context.Cause(r.Context())
					})
				})), http2)
				a := routetest.Get(t, s, "/")
				a.MustBe(t, tc.status, tc.code)
				if tc.code == "" && a.Body != tc.body {
					t.Errorf("body is %q; want %q", a.Body, tc.body)
				}
				if a.Header.Get("ETag") != "" {
					t.Error("the problem has the ETag of another answer")
				}
				if got := <-cause; !errors.Is(got, tc.cause) {
					t.Errorf("the handler's context ended by %v; want %v", got, tc.cause)
				}
				s.Close() // the log is written before the request is over
				if says := strings.Contains(logged.String(), "answered although its lock had ended"); says != (tc.code == "") {
					t.Errorf("the log tells of an answer that was sent: %v\n%s", says, logged)
				}
			})
		}
	}
}

func TestEventStreamIsFlushedUnderTheLock(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			e, _ := routetest.Open(t)
			next := make(chan struct{})
			s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for i := range 3 {
					_, _ = fmt.Fprintf(w, "data: %d\n", i)
					w.(http.Flusher).Flush()
					<-next
				}
			})), http2)
			res, err := s.Client().Do(routetest.NewRequest(t, s, http.MethodGet, "/", ""))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for i := range 3 {
				if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) {
					t.Fatalf("line %d is %q, %v", i, lines.Text(), lines.Err())
				}
				if routetest.Free(t, e, "k") {
					t.Error("the lock is not held while the stream goes on")
				}
				next <- struct{}{}
			}
			if lines.Scan() {
				t.Errorf("another line: %q", lines.Text())
			}
		})
	}
}

func TestHijackedConnectionCountsAsAnswered(t *testing.T) {
	for name, hijack := range map[string]func(http.ResponseWriter) (io.WriteCloser, error){
		"by the interface": func(w http.ResponseWriter) (io.WriteCloser, error) {
			conn, _, err := w.(http.Hijacker).Hijack()
			return conn, err
		},
		"by a controller": func(w http.ResponseWriter) (io.WriteCloser, error) {
			conn, _, err := http.NewResponseController(w).Hijack()
			return conn, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, d := routetest.Open(t)
			logged := logtest.Capture(t)
			locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, err := hijack(w)
				if err != nil {
					t.Error(err)
					return
				}
				d.Expire("test/k")
				<-r.Context().Done()
				_, _ = io.WriteString(conn, "mine")
				_ = conn.Close()
			}))
			over := make(chan struct{})
			s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(over)
				locked.ServeHTTP(w, r)
			}))
			conn := routetest.Dial(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			got, err := io.ReadAll(conn)
			if err != nil || string(got) != "mine" {
				t.Errorf("got %q, %v", got, err)
			}
			<-over // the server does not wait for hijacked connections
			if !strings.Contains(logged.String(), "answered=true") {
				t.Errorf("logged %s", logged)
			}
		})
	}
}
