package routetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

// TestOnce runs every case about requests that run once for each key.
func TestOnce(t *testing.T, s Surface) {
	for _, tc := range []struct {
		promise string
		test    func(*testing.T, Surface)
	}{
		{"RepeatedRequestGetsTheAnswerOfTheFirst", repeatedRequest},
	} {
		t.Run(tc.promise, func(t *testing.T) { tc.test(t, s) })
	}
}

// shop is a route that runs once for each account and key.
type shop struct {
	testing.TB
	wrap    Wrap
	locks   *memlock.Driver
	records *records
	runs    atomic.Int32
	handler http.Handler
}

// payments is the route of a shop.
const payments = "POST /accounts/{account}/payments"

// openShop mounts a handler that counts its runs and then does do, if that is not nil, or tells the number. change is called
// with what goes around it.
func openShop(t testing.TB, s Surface, do http.HandlerFunc, change func(*Wrap), inside ...Wrap) *shop {
	t.Helper()
	sh := &shop{TB: t, records: &records{Store: idempotent.NewMemory(1000)}}
	var e *core.Engine
	e, sh.locks = Open(t)
	sh.wrap = Wrap{
		Engine: e, Policy: core.Policy{Name: "pay", Key: "pay:{path.account}:{header.Idempotency-Key}"},
		Store: sh.records, Once: idempotent.Policy{Died: idempotent.Refuse},
	}
	if change != nil {
		change(&sh.wrap)
	}
	sh.handler = s.one(t, payments, func(w http.ResponseWriter, r *http.Request) {
		n := sh.runs.Add(1)
		if do != nil {
			do(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "run %d", n)
	}, append([]Wrap{sh.wrap}, inside...)...)
	return sh
}

// records is a store that fails while down says so, and tells when an answer is stored.
type records struct {
	idempotent.Store
	down   atomic.Bool
	stored func(answer []byte) []byte // may be nil; what it returns is stored
}

var errDown = errors.New("no route to 10.0.0.7")

func (s *records) Begin(ctx context.Context, key string, c idempotent.Claim) (idempotent.Record, error) {
	if s.down.Load() {
		return idempotent.Record{}, errDown
	}
	return s.Store.Begin(ctx, key, c)
}

func (s *records) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (bool, error) {
	if s.down.Load() {
		return false, errDown
	}
	if s.stored != nil {
		answer = s.stored(answer)
	}
	return s.Store.Finish(ctx, key, c, answer)
}

// request returns one that pays from account a. keys are the lines of its Idempotency-Key.
func (sh *shop) request(body string, keys ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/accounts/a/payments", strings.NewReader(body))
	if keys != nil {
		r.Header["Idempotency-Key"] = keys
	}
	return r
}

// ask serves a request.
func (sh *shop) ask(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	sh.handler.ServeHTTP(w, r)
	return w
}

// pay asks with a key.
func (sh *shop) pay(key string) *httptest.ResponseRecorder { return sh.ask(sh.request("1 EUR", key)) }

// mustGet fails the test unless w has this status and body, and is a replay or none.
func (sh *shop) mustGet(w *httptest.ResponseRecorder, status int, body string, replayed bool) {
	sh.Helper()
	want := ""
	if replayed {
		want = "true"
	}
	if got := w.Header().Get("Idempotent-Replayed"); w.Code != status || w.Body.String() != body || got != want {
		sh.Errorf("got %d %q, replayed %q; want %d %q, %q", w.Code, w.Body, got, status, body, want)
	}
}

// mustRefuse fails the test unless w is a problem with this status and code, which says nothing of anybody.
func (sh *shop) mustRefuse(w *httptest.ResponseRecorder, status int, code string) {
	sh.Helper()
	if w.Code != status || !strings.Contains(w.Body.String(), `"code":"`+code+`"`) || strings.Contains(w.Body.String(), "10.0.0.7") {
		sh.Errorf("got %d %s; want %d %s", w.Code, w.Body, status, code)
	}
	if again := w.Header().Get("Retry-After") != ""; again != (status == 409 || status == 503) {
		sh.Errorf("%d %s with Retry-After %q", status, code, w.Header().Get("Retry-After"))
	}
}

func (sh *shop) mustHaveRun(times int32) {
	sh.Helper()
	if n := sh.runs.Load(); n != times {
		sh.Errorf("the handler has run %d times; want %d", n, times)
	}
}

func repeatedRequest(t *testing.T, s Surface) {
	sh := openShop(t, s, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/x-receipt")
		w.Header().Add("Vary", "Accept")
		w.Header().Add("Vary", "Origin")
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, "\x00\xff%s\n", body)
	}, nil)
	first := sh.pay("k")
	sh.mustGet(first, 202, "\x00\xff1 EUR\n", false)
	for _, same := range []string{"k", `"k"`, " k ", `"k" `} {
		again := sh.pay(same)
		sh.mustGet(again, 202, first.Body.String(), true)
		again.Header().Del("Idempotent-Replayed")
		if got, want := fmt.Sprint(again.Header()), fmt.Sprint(first.Header()); got != want {
			t.Errorf("key %q: the headers are %s; want %s", same, got, want)
		}
	}
	sh.mustHaveRun(1)
	sh.mustGet(sh.pay("other"), 202, first.Body.String(), false)
	sh.mustHaveRun(2)
}
