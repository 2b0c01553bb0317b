package httplock

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
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
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

// gate tells when a request has come and with which status its handler ended.
func gate(h http.Handler) (gated http.Handler, arrived chan struct{}, status chan int) {
	arrived, status = make(chan struct{}), make(chan int, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusOf{ResponseWriter: w}
		close(arrived)
		h.ServeHTTP(noted, r)
		status <- noted.status
	}), arrived, status
}

func TestClientThatHangsUpLeavesTheQueue(t *testing.T) {
	const body = `{"sku":"a"}`
	for name, key := range map[string]string{"body not needed": "stock:a", "body needed": "stock:{body.sku}"} {
		t.Run(name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			release := routetest.Hold(t, e, "stock:a")
			h, arrived, status := gate(Lock(e, core.Policy{Key: key, Wait: core.Forever})(routetest.Never(t)))
			s := routetest.Serve(t, h)
			conn := routetest.Dial(t, s, fmt.Sprintf(
				"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			<-arrived
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if got := <-status; got != 499 {
				t.Errorf("status is %d; want 499", got)
			}
			release()
			if !routetest.Free(t, e, "stock:a") {
				t.Error("the request that is over holds the lock")
			}
		})
	}
}

func TestHTTP2ClientThatCancelsLeavesTheQueue(t *testing.T) {
	e, _ := routetest.Open(t)
	release := routetest.Hold(t, e, "k")
	h, arrived, status := gate(Lock(e, core.Policy{Key: "k", Wait: core.Forever})(routetest.Never(t)))
	s := routetest.Serve(t, h, true)
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
	release()
	if !routetest.Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}

func TestRequestCancelledByAMiddlewareHasNoBody(t *testing.T) {
	e, _ := routetest.Open(t)
	defer routetest.Hold(t, e, "k")()
	locked := Lock(e, core.Policy{Key: "k", Wait: core.Forever})(routetest.Never(t))
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		locked.ServeHTTP(w, r.WithContext(ctx))
	}))
	if a := routetest.Get(t, s, "/"); a.Status != 499 || a.Body != "" {
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

func TestSlowUploadHoldsNoLock(t *testing.T) {
	e, _ := routetest.Open(t)
	reading := make(chan struct{})
	locked := Lock(e, core.Policy{Key: "k", Wait: core.Forever})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	}))
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Slow") != "" {
			r.Body = watchedBody{r.Body, sync.OnceFunc(func() { close(reading) })}
		}
		locked.ServeHTTP(w, r)
	}))
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
				locked := Lock(e, core.Policy{Key: key})(routetest.Never(t))
				s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.before(w)
					locked.ServeHTTP(w, r)
				}))
				conn := routetest.Dial(t, s, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{")
				tc.after(conn)
				answer, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tc.status+" ") {
					t.Errorf("got %q, %v; want %s", answer, err, tc.status)
				}
			})
		}
	}
}

func TestTimeoutHandlerOutsideBoundsTheWait(t *testing.T) {
	e, _ := routetest.Open(t)
	release := routetest.Hold(t, e, "k")
	h, arrived, status := gate(Lock(e, core.Policy{Key: "k", Wait: core.Forever})(routetest.Never(t)))
	s := routetest.Serve(t, http.TimeoutHandler(h, 10*time.Millisecond, "too late"))
	if a := routetest.Get(t, s, "/"); a.Status != 503 || a.Body != "too late" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	<-arrived
	if got := <-status; got != 504 {
		t.Errorf("the lock answers %d; want 504", got)
	}
	release()
	if !routetest.Free(t, e, "k") {
		t.Error("the request that is over holds the lock")
	}
}

func TestHandlerThatIsTimedOutFromOutsideKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := routetest.Open(t)
		leave := make(chan struct{})
		h := http.TimeoutHandler(Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			<-leave
		})), time.Second, "too late")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != 503 {
			t.Errorf("got %d", w.Code)
		}
		if routetest.Free(t, e, "k") {
			t.Error("the lock was released under its handler")
		}
		close(leave)
		synctest.Wait()
		if !routetest.Free(t, e, "k") {
			t.Error("the key stays locked")
		}
	})
}

func TestTimeoutHandlerInsideAnswers(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, ok := core.LeaseFrom(r.Context()); !ok {
			t.Error("there is no lease")
		}
		<-r.Context().Done()
	}), 10*time.Millisecond, "too late")))
	if a := routetest.Get(t, s, "/"); a.Status != 503 || a.Body != "too late" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	if !routetest.Free(t, e, "k") {
		t.Error("the key stays locked")
	}
}
