package lockpage

import (
	"bufio"
	"context"
	"encoding/json"
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
	"github.com/lockaround/lockaround/core/watch"
)

// listener is a stream as a browser has it.
type listener struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
	resp  *http.Response
}

func listen(t *testing.T, address string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, lines: bufio.NewScanner(resp.Body), resp: resp}
	l.lines.Buffer(nil, 16<<20)
	l.close = sync.OnceFunc(func() {
		cancel()
		_ = resp.Body.Close()
	})
	t.Cleanup(l.close)
	return l
}

// next returns the next message; false if the stream has ended.
func (l *listener) next() (m message, ok bool) {
	l.t.Helper()
	for l.lines.Scan() {
		if text, is := strings.CutPrefix(l.lines.Text(), "data: "); is {
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				l.t.Fatal(err)
			}
			return m, true
		}
	}
	return m, false
}

// until reads until a section has the text, and returns the change.
func (l *listener) until(section, text string) change {
	l.t.Helper()
	for {
		m, ok := l.next()
		if !ok {
			l.t.Fatalf("the stream has ended before %q was in %s", text, section)
		}
		for _, c := range m.Sections {
			if c.Name == section && strings.Contains(c.Parts, text) {
				return c
			}
		}
	}
}

func served(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestStreamSendsWhatHasChangedAlone(t *testing.T) {
	v := wanted("stock:book")
	more := wanted("stock:pen")
	more.Keys[0].Waiters = nil
	v.Keys = append(v.Keys, more.Keys...)
	s := &scene{view: v}
	l := listen(t, served(t, s.page(t, ShowKeys())).URL+"/events")
	first := l.until("key", "stock:book")
	if !strings.Contains(first.Parts, "stock:pen") || len(first.Order) != 2 || l.resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("the first message is %+v, %v", first, l.resp.Header)
	}
	changed := v
	changed.Keys = []watch.Key{v.Keys[0], v.Keys[1]}
	changed.Keys[1].Counts.Lost = 77
	s.set(changed)
	if c := l.until("key", ">77<"); strings.Contains(c.Parts, "stock:book") || c.Order != nil {
		t.Errorf("beside the row that has changed it sends %+v", c)
	}
	swapped := v
	swapped.Keys = []watch.Key{changed.Keys[1], changed.Keys[0]}
	s.set(swapped)
	for {
		m, ok := l.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		if len(m.Sections) == 0 {
			continue
		}
		if c := m.Sections[0]; c.Name != "key" || c.Parts != "" || len(c.Order) != 2 || c.Order[0] != first.Order[1] {
			t.Errorf("for another order it sends %+v", m.Sections)
		}
		break
	}
	s.set(watch.View{At: time.Now()})
	for {
		m, ok := l.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		for _, c := range m.Sections {
			if c.Name == "key" && c.Empty {
				return
			}
		}
	}
}

func TestStreamOfAKeyTellsOfItAlone(t *testing.T) {
	s := &scene{view: wanted("stock:book")}
	p := s.page(t)
	srv := served(t, p)
	code := codeIn(t, get(t, p, "/").Body.String())
	l := listen(t, srv.URL+"/events?id="+code)
	if c := l.until("event", "taken"); strings.Contains(c.Parts, "stock:book") {
		t.Errorf("the key is in %+v", c)
	}
	l.close()
	if none := listen(t, srv.URL+"/events?id=0"); none.resp.StatusCode != http.StatusNoContent {
		t.Errorf("of a key that is not known: %s", none.resp.Status)
	}
}

func TestNothingIsWatchedWhenNobodyLooks(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.page(t)
	srv := served(t, p)
	if s.begun > 0 {
		t.Error("a handler that nobody has asked watches")
	}
	one, two := listen(t, srv.URL+"/events"), listen(t, srv.URL+"/events")
	one.until("key", "deduct")
	two.until("key", "deduct")
	if s.begun != 1 {
		t.Errorf("two browsers watch %d times", s.begun)
	}
	one.close()
	s.set(wanted("other"))
	two.until("key", "deduct")
	if !s.watching() {
		t.Error("the watch has ended while one looks")
	}
	two.close()
	eventually(t, "the watch to end", func() bool { return !s.watching() })
	listen(t, srv.URL+"/events").until("key", "deduct")
	if s.begun != 2 {
		t.Errorf("watched %d times, want 2", s.begun)
	}
}

func TestWatchLastsFromOneReloadToTheNext(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.page(t)
	p.hub.linger = 200 * time.Millisecond
	get(t, p, "/")
	get(t, p, "/")
	if s.begun != 1 || !s.watching() {
		t.Errorf("after two reloads it was watched %d times; goes on: %t", s.begun, s.watching())
	}
	eventually(t, "the watch to end", func() bool { return !s.watching() })
}

func TestStreamsAreBounded(t *testing.T) {
	s := &scene{view: wanted("k")}
	srv := served(t, s.page(t, WithStreams(2)))
	one := listen(t, srv.URL+"/events")
	listen(t, srv.URL+"/events").until("key", "deduct")
	one.until("key", "deduct")
	if third := listen(t, srv.URL+"/events"); third.resp.StatusCode != 503 || third.resp.Header.Get("Retry-After") == "" {
		t.Errorf("the third gets %s", third.resp.Status)
	}
	one.close()
	eventually(t, "room for another", func() bool { return listen(t, srv.URL+"/events").resp.StatusCode == 200 })
}

// A browser that does not read is given up, and does not keep the stream's place.
func TestSlowReaderIsGivenUp(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.page(t, WithStreams(1))
	w := &stuck{ResponseRecorder: httptest.NewRecorder()}
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
	if left := time.Until(w.deadline); left <= 0 || left > slowest {
		t.Errorf("the deadline of its write is in %v", left)
	}
	if len(p.slots) > 0 {
		t.Error("it keeps its place")
	}
	whole := &stuck{ResponseRecorder: httptest.NewRecorder()}
	p.ServeHTTP(whole, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if left := time.Until(whole.deadline); left <= 0 || left > slowest {
		t.Errorf("the deadline of a whole page is in %v", left)
	}
	for name, h := range map[string]http.Handler{"a server without deadlines": p, "a TimeoutHandler": http.TimeoutHandler(p, time.Minute, "")} {
		if w := get(t, h, "/events"); w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), "Unwrap") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// stuck is a connection that takes nothing until its deadline.
type stuck struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *stuck) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }
func (w *stuck) Write([]byte) (int, error)          { return 0, context.DeadlineExceeded }

func TestServerShutsDownBesideStreams(t *testing.T) {
	s := &scene{view: wanted("k")}
	srv := served(t, s.page(t))
	l := listen(t, srv.URL+"/events")
	l.until("key", "deduct")
	if err := srv.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		if _, ok := l.next(); !ok {
			return
		}
	}
}

func TestServerShutsDownBesideAStreamThatBeginsMeanwhile(t *testing.T) {
	for name, try := range map[string]struct {
		known bool // by a request before
		base  func(net.Listener) context.Context
	}{
		"that is the first request": {false, nil},
		"after another request":     {true, func(net.Listener) context.Context { return context.Background() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scene{view: wanted("k")}
			p := s.page(t)
			came, goOn := make(chan bool), make(chan bool)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/events") { // an authentication that takes its time
					came <- true
					<-goOn
				}
				p.ServeHTTP(w, r)
			}))
			srv.Config.BaseContext = try.base
			srv.Start()
			t.Cleanup(srv.Close)
			if try.known {
				resp, err := srv.Client().Get(srv.URL + "/style.css")
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
			ended := make(chan error, 1)
			go func() {
				resp, err := srv.Client().Get(srv.URL + "/events")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				ended <- err
			}()
			<-came
			shut := make(chan bool)
			srv.Config.RegisterOnShutdown(func() { close(shut) })
			down := make(chan error, 1)
			go func() { down <- srv.Config.Shutdown(t.Context()) }()
			<-shut
			goOn <- true
			select {
			case err := <-down:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("the server waits for the stream")
				srv.CloseClientConnections()
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStreamOutlivesTheServersTimeouts(t *testing.T) {
	s := &scene{view: wanted("k")}
	srv := httptest.NewUnstartedServer(s.page(t))
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
	srv.Start()
	t.Cleanup(srv.Close)
	l := listen(t, srv.URL+"/events")
	l.until("key", "deduct")
	time.Sleep(2 * srv.Config.WriteTimeout) // they would have ended it
	v := wanted("k")
	v.Keys[0].Counts.Lost = 78
	s.set(v)
	l.until("key", ">78<")
}

func TestStreamEndsWithTheEngine(t *testing.T) {
	e := engine(t)
	srv := served(t, Handler(e))
	l := listen(t, srv.URL+"/events")
	if _, ok := l.next(); !ok {
		t.Fatal("no message")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, ok := l.next(); !ok {
			return
		}
	}
}

// told is a panel that says what a test tells it.
type told func(context.Context) core.Panel

func (f told) Panel(ctx context.Context) core.Panel { return f(ctx) }

func TestPanelsAreShownAndDoNoHarm(t *testing.T) {
	t.Parallel()
	s := &scene{view: wanted("k")}
	p := s.page(t, WithPanels(
		told(func(context.Context) core.Panel {
			return core.Panel{Title: "serial refund", Columns: []string{"length", "oldest", "since", "ok", "<b>"}, Rows: [][]any{{12_000, 3 * time.Second, time.Now().Add(-time.Hour), true, "<i>"}, {nil}}}
		}),
		told(func(context.Context) core.Panel { panic("broken") }),
		told(func(ctx context.Context) core.Panel { <-ctx.Done(); return core.Panel{Title: "slow", Err: ctx.Err()} }),
	))
	srv := served(t, p)
	l := listen(t, srv.URL+"/events")
	seen := map[string]bool{}
	for len(seen) < 8 {
		m, ok := l.next()
		if !ok {
			t.Fatal("the stream has ended")
		}
		for _, c := range m.Sections {
			for _, want := range []string{"serial refund", "12,000", "3.0 s", "data-t=", "yes", "&lt;i&gt;", "panicked", "deadline exceeded"} {
				if c.Name == "panel" && strings.Contains(c.Parts, want) {
					seen[want] = true
				}
			}
		}
	}
}

// fault is an error that a nil pointer cannot say.
type fault struct{ text string }

func (f *fault) Error() string { return f.text }

func TestErrorOfAPanelThatCannotBeSaidHidesNothingElse(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.page(t, WithPanels(told(func(context.Context) core.Panel {
		var none *fault
		return core.Panel{Title: "refunds", Err: none}
	})))
	listen(t, served(t, p).URL+"/events").until("panel", "panicked")
	if w := get(t, p, "/"); w.Code != 200 {
		t.Errorf("the page: %d", w.Code)
	}
}

func TestEndOfTheEngineIsSeenBesideAPanelThatDoesNotReturn(t *testing.T) {
	goOn := make(chan bool)
	defer close(goOn)
	e := engine(t)
	h := Handler(e, WithPanels(told(func(context.Context) core.Panel { <-goOn; return core.Panel{} })))
	l := listen(t, served(t, h).URL+"/events")
	if _, ok := l.next(); !ok {
		t.Fatal("no message")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, ok := l.next(); !ok {
			break
		}
	}
	if w := get(t, h, "/"); w.Code != 503 {
		t.Errorf("the page of an engine that is closed: %d", w.Code)
	}
}

func TestStreamGoesThroughGin(t *testing.T) {
	s := &scene{view: wanted("stock:book")}
	router := gin.New()
	router.Any("/debug/locks/*page", gin.WrapH(s.page(t, ShowKeys())))
	listen(t, served(t, router).URL+"/debug/locks/events").until("key", "stock:book")
}
