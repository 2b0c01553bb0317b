// Package routetest tests locks and fences around the routes of an HTTP server. The cases
// are the same for every router; an adapter puts them on one.
//
// # Files
//
// surface.go has what an adapter fills in, the list of cases, and the requests that all of them send.
// locks.go tries locks, keys.go where a key comes from, waiting.go requests that wait and their bodies,
// answers.go what clients see and send again, fence.go tokens, settings.go faults of policies and
// options, and once.go requests that run once for each key; badrequests.go has those that do not.
package routetest

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Surface is how a package puts locks and fences around the routes of a router.
type Surface struct {
	// Mount returns a router with these routes.
	Mount func(t testing.TB, routes ...Route) http.Handler
	// Rest is what the router calls the rest "b/c" of a path: "b/c" or "/b/c".
	Rest string
	// ErrBody is the package's error of a body that cannot be read.
	ErrBody error
	// Answered reports whether a handler has begun the answer. It gets the writer of OnError.
	Answered func(http.ResponseWriter) bool
}

// Route is a handler and what goes around it.
type Route struct {
	Pattern string // in the syntax of http.ServeMux: "POST /products/{sku}"
	Around  []Wrap // the first is outermost
	Handler http.HandlerFunc
}

// Wrap describes a lock, a fence if it has a Guard, what runs a request once if it has a Store, ReadTokens, or a
// compressing middleware.
// Options that are zero are not given.
type Wrap struct {
	Engine *core.Engine
	Policy core.Policy
	Guard  fence.Guard // makes it a fence for Policy.Key
	Store  idempotent.Store
	Once   idempotent.Policy // with a Store
	Tokens bool              // makes it ReadTokens
	Gzip   bool              // makes it a middleware that compresses what is written behind it

	Unbuffered bool // WithoutBodyBuffer
	BodyLimit  int64
	Filter     func(*http.Request) bool
	OnError    func(http.ResponseWriter, *http.Request, error)
	Values     map[string]func(*http.Request) (string, error)
	Replayed   []string // WithReplayedHeaders
	Kept       func(status int) bool
}

// one mounts a handler behind wraps.
func (s Surface) one(t testing.TB, pattern string, h http.HandlerFunc, around ...Wrap) http.Handler {
	t.Helper()
	return s.Mount(t, Route{Pattern: pattern, Around: around, Handler: h})
}

// Test runs every case that is the same for all routers.
func Test(t *testing.T, s Surface) {
	for _, tc := range []struct {
		promise string
		test    func(*testing.T, Surface)
	}{
		{"RequestsForOneKeyRunOneAtATime", requestsForOneKeyRunOneAtATime},
		{"TakenKeyIsAConflictForItsOwnRequestsOnly", takenKeyIsAConflict},
		{"RefusedCallsNeverRun", refusedCallsNeverRun},
		{"LocksNestFromTheOutside", locksNest},
		{"PanicsPassThroughAndRelease", panicsPassThrough},
		{"FilterAloneLetsRequestsThroughUnlocked", filterLetsThrough},
		{"MiddlewareLogsWhereItsEngineDoes", logsWhereTheEngineDoes},
		{"AnswersNameNobodyWhoHolds", answersNameNobody},
		{"PolicyOfAnyModeGoesAroundACall", anyMode},
		{"KeyComesFromWhereItSays", keyComesFromWhereItSays},
		{"ListOfTheBodyLocksAKeyForEachElement", listLocksEachElement},
		{"HandlersFindTheWholeBody", handlersFindTheWholeBody},
		{"BodyOverTheLimit", bodyOverTheLimit},
		{"BodyIsLeftUnreadOnRequest", bodyLeftUnread},
		{"UploadedFilesAreRemoved", uploadedFilesAreRemoved},
		{"ClientThatHangsUpLeavesTheQueue", hangingUp},
		{"HTTP2ClientThatCancelsLeavesTheQueue", cancelling},
		{"RequestCancelledByAMiddlewareHasNoBody", cancelledBefore},
		{"SlowUploadHoldsNoLock", slowUpload},
		{"BodyThatDoesNotComeIsRefused", bodyThatDoesNotCome},
		{"ErrorHandlerAnswersInPlaceOfTheLock", errorHandlerAnswers},
		{"AnswerAboutALostLeaseCanBeReadBesideCompression", answerBesideCompression},
		{"RequestThatMayHaveRunIsNotSentAgain", notSentAgain},
		{"RequestThatNeverRanIsSentAgain", sentAgain},
		{"RequestRunsUnderTheTokenOfItsOwnKeyOnly", tokenOfItsOwnKey},
		{"GuardThatFailsKeepsTheHandlerFromRunning", failingGuard},
		{"CancelledRequestIsNotRefusedForTheGuard", cancelledAtTheGuard},
		{"OptionsOfAFence", optionsOfAFence},
		{"FenceOnARouteWithoutItsParameterRunsNothing", fenceWithoutParameter},
		{"FenceLeavesBodiesThatItDoesNotNeedUnread", fenceLeavesBodies},
		{"LeaseOfTheServerIsNoTokenOfItsClient", leaseIsNoToken},
		{"ReadTokensChecksNothingButTheirForm", readTokensCheckTheirForm},
		{"RequestOfTheHolderIsADeadlock", holdersRequest},
	} {
		t.Run(tc.promise, func(t *testing.T) { tc.test(t, s) })
	}
}

// Open returns an engine on a store of its own, both of which end with the test.
func Open(t testing.TB) (*core.Engine, *memlock.Driver) {
	t.Helper()
	d := memlock.New()
	e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, d
}

// Serve serves h by real HTTP until the test ends: by HTTP/2 with TLS, or by HTTP/1.
func Serve(t testing.TB, h http.Handler, http2 ...bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if len(http2) > 0 && http2[0] {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Answer is a response that was read to its end.
type Answer struct {
	Status  int
	Header  http.Header
	Body    string
	Problem problem.Problem // if the body is one
}

// Send may be called from any goroutine. It returns a zero answer, and the test fails, if
// there was none.
func Send(t testing.TB, s *httptest.Server, r *http.Request) (a Answer) {
	t.Helper()
	res, err := s.Client().Do(r)
	if err != nil {
		t.Error(err)
		return a
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	a = Answer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
	if res.Header.Get("Content-Type") == "application/problem+json" && len(body) > 0 {
		if err := json.Unmarshal(body, &a.Problem); err != nil {
			t.Errorf("%v in %s", err, body)
		}
	}
	return a
}

// NewRequest returns a request to s. The headers are pairs of name and value.
func NewRequest(t testing.TB, s *httptest.Server, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, from)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// Get sends a GET request.
func Get(t testing.TB, s *httptest.Server, path string) Answer {
	t.Helper()
	return Send(t, s, NewRequest(t, s, http.MethodGet, path, ""))
}

// Post sends a POST request without a body and with these values of the header that fencing
// tokens are in.
func Post(t testing.TB, s *httptest.Server, path string, tokens ...string) Answer {
	t.Helper()
	r := NewRequest(t, s, http.MethodPost, path, "")
	for _, v := range tokens {
		r.Header.Add("fencing-token", v)
	}
	return Send(t, s, r)
}

// MustBe fails the test unless a has this status and, if it is a problem, code.
func (a Answer) MustBe(t testing.TB, status int, code string) {
	t.Helper()
	if a.Status != status || a.Problem.Code != code {
		t.Errorf("answer is %d %q %s; want %d %q", a.Status, a.Problem.Code, a.Body, status, code)
	}
}

// TellKey is a handler that answers with the key of the lock that it runs under.
func TellKey(w http.ResponseWriter, r *http.Request) {
	key := "unlocked"
	if lease, ok := core.LeaseFrom(r.Context()); ok {
		key = lease.Key()
	}
	_, _ = fmt.Fprint(w, key)
}

// Never returns a handler that must not run.
func Never(t testing.TB) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") }
}

// Free reports whether a key can be locked at once.
func Free(t testing.TB, e *core.Engine, key string) bool {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		return false
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return true
}

// Hold takes a key until the function that it returns is called.
func Hold(t testing.TB, e *core.Engine, key string) (release func()) {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Dial opens a connection to s and sends text.
func Dial(t testing.TB, s *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // often closed before
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}
