package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// patience is how long a test waits for an event that has to come, and an engine for its
// store. It only ever runs out when the test fails.
const patience = 2 * time.Minute

// lasting is the TTL of a lease that nobody ends before patience runs out.
const lasting = 10 * patience

// site is a store with two processes on it: one serves, and the other tells
// whether a key is taken.
type site struct {
	store *memlock.Driver
	locks *core.Engine
	rival *core.Engine
	queue *queue // of the callers of locks
}

// newSite returns a site that ends with the test.
func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{store: memlock.New(), queue: &queue{changed: make(chan struct{})}}
	open := func(o ...core.Option) *core.Engine {
		o = append(o, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithStoreTimeout(patience))
		e, err := core.New(s.store, o...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	s.locks, s.rival = open(core.WithMeterProvider(meters{queue: s.queue})), open()
	return s
}

// taken reports whether somebody holds the key. It may be called from any
// goroutine of the test.
func (s *site) taken(t testing.TB, key string) bool {
	t.Helper()
	l, err := s.rival.Acquire(context.Background(), core.Policy{Key: key})
	switch {
	case errors.Is(err, core.ErrBusy):
		return true
	case err != nil:
		t.Error(err)
		return false
	}
	if err := l.Release(context.Background()); err != nil {
		t.Error(err)
	}
	return false
}

// mustBeTaken fails the test if nobody holds the key.
func (s *site) mustBeTaken(t testing.TB, key, when string) {
	t.Helper()
	if !s.taken(t, key) {
		t.Errorf("the lock is free %s; want it held", when)
	}
}

// mustBeFree fails the test if somebody holds the key.
func (s *site) mustBeFree(t testing.TB, key, when string) {
	t.Helper()
	if s.taken(t, key) {
		t.Errorf("the lock is held %s; want it free", when)
	}
}

// mustBecomeFree is mustBeFree for a key whose only waiter has just left: a grant
// that crosses its withdrawal at the store is given back in the background.
func (s *site) mustBecomeFree(t testing.TB, key, when string) {
	t.Helper()
	l, err := s.rival.Acquire(context.Background(), core.Policy{Key: key, Wait: patience})
	if err != nil {
		t.Errorf("the lock stays held %s: %v", when, err)
		return
	}
	if err := l.Release(context.Background()); err != nil {
		t.Error(err)
	}
}

// occupy takes the key in the other process until release is called.
func (s *site) occupy(t testing.TB, key string) (release func()) {
	t.Helper()
	l, err := s.rival.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// quiet silences slog's default for the rest of the test, which must not be
// parallel.
func quiet(t *testing.T) {
	t.Helper()
	// SetDefault diverts package log as well, and does not undo that.
	before, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		slog.SetDefault(before)
		log.SetOutput(out)
		log.SetFlags(flags)
	})
}

// queue is the lock.waiting of one engine, with an event for each change.
type queue struct {
	noop.Int64UpDownCounter
	mu      sync.Mutex
	n       int64
	changed chan struct{} // closed and replaced when n changes
}

func (q *queue) Add(_ context.Context, by int64, _ ...metric.AddOption) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.n += by
	close(q.changed)
	q.changed = make(chan struct{})
}

// mustBecome waits until n callers wait for a lock.
func (q *queue) mustBecome(t testing.TB, n int64) {
	t.Helper()
	late := time.After(patience)
	for {
		q.mu.Lock()
		got, changed := q.n, q.changed
		q.mu.Unlock()
		if got == n {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d callers wait; want %d", got, n)
		}
	}
}

// meters is a provider that measures the queue and nothing else.
type meters struct {
	noop.MeterProvider
	queue *queue
}

func (m meters) Meter(string, ...metric.MeterOption) metric.Meter { return meter{queue: m.queue} }

type meter struct {
	noop.Meter
	queue *queue
}

func (m meter) Int64UpDownCounter(name string, o ...metric.Int64UpDownCounterOption) (metric.Int64UpDownCounter, error) {
	if name == "lock.waiting" {
		return m.queue, nil
	}
	return m.Meter.Int64UpDownCounter(name, o...)
}

// await waits for something that has to come and returns it; the zero value
// comes from a channel that is closed, and with a failure when it does not come.
// It may be called from any goroutine of the test.
func await[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Errorf("%s does not come", what)
	}
	return v
}

// newRouter returns a router that logs nothing and passes contexts on.
func newRouter() *gin.Engine {
	r := gin.New()
	r.ContextWithFallback = true
	return r
}

// protocol is how a test's client and server talk.
type protocol string

const (
	http1 protocol = "HTTP/1.1"
	http2 protocol = "HTTP/2.0"
)

// serve serves h until the test ends.
func serve(t testing.TB, p protocol, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Proto != string(p) {
			t.Errorf("the protocol is %s; want %s", r.Proto, p)
		}
		h.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if p == http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	s.Client().Timeout = patience
	t.Cleanup(s.Close)
	return s
}

// newRequest returns a request to s.
func newRequest(t testing.TB, s *httptest.Server, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reply is a response that was read to its end, or why there is none.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// send may be called from any goroutine.
func send(s *httptest.Server, r *http.Request) reply {
	res, err := s.Client().Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }() // its end was seen
	body, err := io.ReadAll(res.Body)
	return reply{status: res.StatusCode, header: res.Header, body: string(body), err: err}
}

// codeOf returns the code of the problem that a is, and "" if a is a success.
func codeOf(t testing.TB, a reply) string {
	t.Helper()
	if a.err != nil || a.status < http.StatusBadRequest {
		return ""
	}
	var problem struct{ Code string }
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %q is no problem: %v", a.status, a.header, a.body, err)
	}
	return problem.Code
}

// sendAside sends a request from a goroutine of its own.
func sendAside(s *httptest.Server, r *http.Request) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- send(s, r) }()
	return c
}
