package routetest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

// statusOf notes the status that a handler writes.
type statusOf struct {
	http.ResponseWriter
	status int
}

func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Gate tells when a request has come and with which status its handler ended.
func Gate(h http.Handler) (gated http.Handler, arrived chan struct{}, status chan int) {
	arrived, status = make(chan struct{}), make(chan int, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusOf{ResponseWriter: w}
		close(arrived)
		h.ServeHTTP(noted, r)
		status <- noted.status
	}), arrived, status
}

func hangingUp(t *testing.T, s Surface) {
	const body = `{"sku":"a"}`
	for name, key := range map[string]string{"body not needed": "stock:{path.sku}", "body needed": "stock:{body.sku}"} {
		t.Run(name, func(t *testing.T) {
			e, _ := Open(t)
			release := Hold(t, e, "stock:a")
			h, arrived, status := Gate(s.one(t, "POST /{sku}", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: key, Wait: core.Forever}}))
			srv := Serve(t, h)
			conn := Dial(t, srv, fmt.Sprintf(
				"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			<-arrived
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if got := <-status; got != 499 {
				t.Errorf("status is %d; want 499", got)
			}
			release()
			if !Free(t, e, "stock:a") {
				t.Error("the request that is over holds the lock")
			}
		})
	}
}

func cancelling(t *testing.T, s Surface) {
	e, _ := Open(t)
	release := Hold(t, e, "k")
	router := s.one(t, "POST /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	h, arrived, status := Gate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", r.Proto)
		}
		router.ServeHTTP(w, r)
	}))
	srv := Serve(t, h, true)
	ctx, cancel := context.WithCancel(t.Context())
	req := NewRequest(t, srv, http.MethodPost, "/", "text").WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := srv.Client().Do(req)
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
	release()
	if !Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}

func cancelledBefore(t *testing.T, s Surface) {
	e, _ := Open(t)
	defer Hold(t, e, "k")()
	router := s.one(t, "GET /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		router.ServeHTTP(w, r.WithContext(ctx))
	}))
	if a := Get(t, srv, "/"); a.Status != 499 || a.Body != "" {
		t.Errorf("got %d %q; want 499 without a body", a.Status, a.Body)
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

func slowUpload(t *testing.T, s Surface) {
	e, _ := Open(t)
	reading := make(chan struct{})
	router := s.one(t, "POST /", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	}, Wrap{Engine: e, Policy: core.Policy{Key: "k", Wait: core.Forever}})
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			r.Body = watchedBody{r.Body, sync.OnceFunc(func() { close(reading) })}
		}
		router.ServeHTTP(w, r)
	}))
	conn := Dial(t, srv, "POST / HTTP/1.1\r\nHost: x\r\nX-Slow: 1\r\nConnection: close\r\nContent-Length: 8\r\n\r\nfirs")
	<-reading
	if a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/", "fast")); a.Body != "fast <nil>" {
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

func bodyThatDoesNotCome(t *testing.T, s Surface) {
	e, _ := Open(t)
	for _, key := range []string{"k", "{body.x}"} {
		for _, tc := range []struct {
			name   string
			before func(http.ResponseWriter)
			after  func(net.Conn)
			status string
		}{
			{name: "broken off", status: "499", before: func(http.ResponseWriter) {}, after: func(conn net.Conn) {
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Error(err)
				}
			}},
			// The server's ReadTimeout, at an instant that the test can know.
			{name: "too slow", status: "408", after: func(net.Conn) {}, before: func(w http.ResponseWriter) {
				if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
					t.Error(err)
				}
			}},
		} {
			t.Run(tc.name+", key "+key, func(t *testing.T) {
				router := s.one(t, "POST /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: key}})
				srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.before(w)
					router.ServeHTTP(w, r)
				}))
				conn := Dial(t, srv, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{")
				tc.after(conn)
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.status+" ") {
					t.Errorf("got %q, %v; want %s", answer, err, tc.status)
				}
			})
		}
	}
}
