package httplock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// bare is a ResponseWriter and nothing else; the types below add an interface
// each.
type bare struct{ http.ResponseWriter }

type (
	canFlush  struct{}
	canHijack struct{}
	canPush   struct{}
)

func (canFlush) Flush() {}

func (canHijack) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (canPush) Push(string, *http.PushOptions) error { return nil }

func TestWriterIsWhatTheOneBeforeTheLockIs(t *testing.T) {
	rec := bare{httptest.NewRecorder()}
	for name, w := range map[string]http.ResponseWriter{
		"nothing": rec,
		"flush": struct {
			bare
			canFlush
		}{bare: rec},
		"hijack": struct {
			bare
			canHijack
		}{bare: rec},
		"push": struct {
			bare
			canPush
		}{bare: rec},
		"flush and hijack": struct {
			bare
			canFlush
			canHijack
		}{bare: rec},
		"flush and push": struct {
			bare
			canFlush
			canPush
		}{bare: rec},
		"hijack and push": struct {
			bare
			canHijack
			canPush
		}{bare: rec},
		"flush and hijack and push": struct {
			bare
			canFlush
			canHijack
			canPush
		}{bare: rec},
	} {
		t.Run(name, func(t *testing.T) {
			out := (&writer{inner: w}).as()
			_, flush := out.(http.Flusher)
			_, hijack := out.(http.Hijacker)
			_, push := out.(http.Pusher)
			if flush != strings.Contains(name, "flush") || hijack != strings.Contains(name, "hijack") || push != strings.Contains(name, "push") {
				t.Errorf("flush %v, hijack %v, push %v", flush, hijack, push)
			}
			if push && out.(http.Pusher).Push("/", nil) != nil || Answered(out) {
				t.Error("pushing fails or counts as an answer")
			}
			if !flush {
				if err := http.NewResponseController(out).Flush(); !errors.Is(err, http.ErrNotSupported) || Answered(out) {
					t.Errorf("flushing: %v, answered %v; want http.ErrNotSupported, false", err, Answered(out))
				}
			}
			if _, _, err := http.NewResponseController(out).Hijack(); hijack != (err == nil) || !hijack && !errors.Is(err, http.ErrNotSupported) || hijack != Answered(out) {
				t.Errorf("hijacking: %v, answered %v", err, Answered(out))
			}
			if flush {
				out := (&writer{inner: w}).as()
				out.(http.Flusher).Flush()
				if !Answered(out) {
					t.Error("flushing does not count as an answer")
				}
			}
		})
	}
}

func TestWriterOfAServerKeepsItsInterfaces(t *testing.T) {
	of := func(w http.ResponseWriter) string {
		_, flush := w.(http.Flusher)
		_, hijack := w.(http.Hijacker)
		_, push := w.(http.Pusher)
		return fmt.Sprintf("flush %v, hijack %v, push %v", flush, hijack, push)
	}
	for _, tc := range []struct {
		name  string
		http2 bool
		outer func(http.Handler) http.Handler
		want  string
	}{
		{"HTTP/1", false, nil, "flush true, hijack true, push false"},
		{"HTTP/2", true, nil, "flush true, hijack false, push true"},
		{"http.TimeoutHandler", true, func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Minute, "") }, "flush false, hijack false, push true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			h := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, of(w))
			}))
			if tc.outer != nil {
				h = tc.outer(h)
			}
			if a := routetest.Get(t, routetest.Serve(t, h, tc.http2), "/"); a.Body != tc.want {
				t.Errorf("got %s; want %s", a.Body, tc.want)
			}
		})
	}
}

// wrapped hides all interfaces of a ResponseWriter, but shows a controller the
// way to it.
type wrapped struct{ bare }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestControllerReachesThroughOtherWrappers(t *testing.T) {
	for name, act := range map[string]func(*http.ResponseController) error{
		"flush": (*http.ResponseController).Flush,
		"hijack": func(c *http.ResponseController) error {
			conn, _, err := c.Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			over := make(chan struct{})
			locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				c := http.NewResponseController(w)
				if err := errors.Join(c.SetWriteDeadline(time.Time{}), c.SetReadDeadline(time.Time{}), c.EnableFullDuplex()); err != nil {
					t.Error(err)
				}
				if Answered(w) {
					t.Error("answered too soon")
				}
				if err := act(c); err != nil || !Answered(w) {
					t.Errorf("got %v, answered %v", err, Answered(w))
				}
			}))
			s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(over)
				locked.ServeHTTP(wrapped{bare{w}}, r)
			}))
			_, _ = io.ReadAll(routetest.Dial(t, s, "GET / HTTP/1.0\r\nHost: x\r\n\r\n"))
			<-over
		})
	}
}

func TestStatusIsTheFirstThatIsAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		act    func(http.ResponseWriter)
		status int
	}{
		{"nothing", func(http.ResponseWriter) {}, 0},
		{"header", func(w http.ResponseWriter) { w.Header().Set("X", "y") }, 0},
		{"100", func(w http.ResponseWriter) { w.WriteHeader(100) }, 0},
		{"103", func(w http.ResponseWriter) { w.WriteHeader(103) }, 0},
		{"101", func(w http.ResponseWriter) { w.WriteHeader(101) }, 101},
		{"103, then 404", func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(404) }, 404},
		{"201, then 500", func(w http.ResponseWriter) { w.WriteHeader(201); w.WriteHeader(500) }, 201},
		{"nothing of a body", func(w http.ResponseWriter) { _, _ = w.Write(nil) }, 200},
		{"body", func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) }, 200},
		{"string", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, 200},
		{"copy", func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("x")) }, 200},
		{"copy of nothing", func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("")) }, 0},
		{"status and body", func(w http.ResponseWriter) { w.WriteHeader(202); _, _ = w.Write([]byte("x")) }, 202},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &writer{inner: bare{httptest.NewRecorder()}}
			tc.act(w.as())
			if w.status != tc.status || w.answered() != (tc.status != 0) {
				t.Errorf("status %d, answered %v; want %d", w.status, w.answered(), tc.status)
			}
		})
	}
}

// readFrom notes that a copy reached it whole.
type readFrom struct {
	http.ResponseWriter
	from io.Reader
}

func (r *readFrom) ReadFrom(src io.Reader) (int64, error) {
	r.from = src
	return io.Copy(r.ResponseWriter, src)
}

func TestCopyOfNothingIsNoAnswer(t *testing.T) {
	w := &writer{inner: &readFrom{ResponseWriter: httptest.NewRecorder()}}
	if n, err := w.ReadFrom(strings.NewReader("")); n != 0 || err != nil || w.answered() {
		t.Errorf("copied %d, %v, answered %v", n, err, w.answered())
	}
	if n, err := w.ReadFrom(strings.NewReader("x")); n != 1 || err != nil || !w.answered() {
		t.Errorf("copied %d, %v, answered %v", n, err, w.answered())
	}
}

// brokenFlush is a Flusher whose connection is gone.
type brokenFlush struct{ http.ResponseWriter }

var errBroken = errors.New("connection is gone")

func (brokenFlush) Flush() {}

func (brokenFlush) FlushError() error { return errBroken }

func TestControllerLearnsWhyFlushingFails(t *testing.T) {
	w := &writer{inner: brokenFlush{httptest.NewRecorder()}}
	if err := http.NewResponseController(w.as()).Flush(); !errors.Is(err, errBroken) || !w.answered() {
		t.Errorf("got %v, answered %v", err, w.answered())
	}
}

func TestFileReachesTheConnectionAsAFile(t *testing.T) {
	e, _ := routetest.Open(t)
	text := strings.Repeat("0123456789", 10_000)
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }))
	from := make(chan string, 1)
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &readFrom{ResponseWriter: w}
		locked.ServeHTTP(noted, r)
		limited, _ := noted.from.(*io.LimitedReader)
		from <- fmt.Sprintf("%T", limited.R)
	}))
	if a := routetest.Get(t, s, "/"); a.Body != text {
		t.Errorf("got %d bytes", len(a.Body))
	}
	if got := <-from; got != "*os.File" {
		t.Errorf("the copy is from a %s, so that it is not sent by sendfile", got)
	}
}

func TestTrailersPass(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "x")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	})))
	res, err := s.Client().Do(routetest.NewRequest(t, s, http.MethodGet, "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err != nil || res.Trailer.Get("X-Sum") != "1" {
		t.Errorf("trailer %v, %v", res.Trailer, err)
	}
}
