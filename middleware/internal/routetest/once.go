package routetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
		{"WrongRequestRunsNothing", wrongRequests},
		{"RegistrationNamesTheFault", faultsOfRegistration},
		{"ClientThatHangsUpFindsTheAnswerLater", hangsUpAfterTheEffect},
		{"OnlyHeadersOfTheListAreReplayed", headersOfTheList},
		{"AnswerTooLargeToKeepIsSentOnce", largeAnswer},
		{"PanicPassesThroughAndSendsNothing", panicSendsNothing},
		{"StatusSaysWhatRunsAgain", statusRunsAgain},
		{"AnswersAreKeptAsTheOptionSays", keptAsTheOptionSays},
		{"StoreThatIsDownRunsNothing", storeIsDown},
		{"AnswerThatCannotBeStoredIsSent", cannotBeStored},
		{"DuplicateIsAConflictOrWaits", duplicate},
		{"NothingIsToldBeforeItIsStored", heldBack},
		{"AnswerOfALostLockIsDropped", lostLock},
		{"ErrorHandlerIsToldOfRecords", toldOfRecords},
		{"GarbledRecordIsNotReplayed", garbledRecord},
		{"LockInsideWorks", lockInside},
		{"BodyThatWasReadBeforeIsRefused", consumedBody},
		{"TypeThatIsNotToBeGuessedIsNotGuessedInAReplay", unguessedType},
		{"LossOfALockInsideLeavesTheOutcomeUnknown", lostLockInside},
		{"CompressionStaysWhereItIs", besideCompression},
		{"AnswersWithoutABody", withoutBody},
		{"FilterLetsRequestsRunTwice", filterRunsTwice},
		{"AnswerCannotLeaveBeforeItsTime", cannotLeave},
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
	sh.handler = s.one(t, payments, sh.handled(do), append([]Wrap{sh.wrap}, inside...)...)
	return sh
}

// handled counts its runs.
func (sh *shop) handled(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		n := sh.runs.Add(1)
		if do != nil {
			do(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "run %d", n)
	}
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

// TwoCallers has two callers choose the same key.
func TwoCallers(t *testing.T, s Surface) {
	sh := openShop(t, s, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "balance of "+r.Header.Get("X-Caller"))
	}, func(w *Wrap) {
		w.Policy.Key = "pay:{header.X-Caller}:{header.Idempotency-Key}"
	})
	for _, replayed := range []bool{false, true} {
		for _, caller := range []string{"ann", "bob", "ann:k", "ann%3Ak"} {
			r := sh.request("1 EUR", "k")
			r.Header.Set("X-Caller", caller)
			sh.mustGet(sh.ask(r), 200, "balance of "+caller, replayed)
		}
	}
	sh.mustHaveRun(4)
}

// hangsUpAfterTheEffect uses a real connection, which breaks while the handler runs.
func hangsUpAfterTheEffect(t *testing.T, s Surface) {
	for _, http2 := range []bool{false, true} {
		effect, finish := make(chan struct{}), make(chan struct{})
		sh := openShop(t, s, func(w http.ResponseWriter, r *http.Request) {
			close(effect)
			<-finish
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context has ended: %v", err)
			}
			_, _ = io.WriteString(w, "paid")
		}, func(w *Wrap) { w.Policy.Wait = time.Minute })
		srv := Serve(t, sh.handler, http2)
		send := func(ctx context.Context) (*http.Response, error) {
			return srv.Client().Do(NewRequest(t, srv, http.MethodPost, "/accounts/a/payments", "1 EUR", "Idempotency-Key", "k").WithContext(ctx))
		}
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			res, err := send(ctx)
			if err == nil {
				err = res.Body.Close()
			}
			gone <- err
		}()
		<-effect
		hangUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		time.AfterFunc(10*time.Millisecond, func() { close(finish) }) // so that the server has seen it
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/accounts/a/payments", "1 EUR", "Idempotency-Key", "k"))
		if a.Status != 200 || a.Body != "paid" || a.Header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("got %+v", a)
		}
		sh.mustHaveRun(1)
	}
}

func headersOfTheList(t *testing.T, s Surface) {
	kept := []string{
		"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Range",
		"Content-Type", "Etag", "Expires", "Last-Modified", "Location", "Vary", "X-Order",
	}
	sent := append([]string{"Set-Cookie", "Set-Cookie2", "Server", "Retry-After", "X-Trace", "Link", "Www-Authenticate"}, kept...)
	sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range sent {
			w.Header()[name] = []string{"1", "2"}
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "paid")
		w.Header().Set("Etag", "late")
	}, func(w *Wrap) { w.Replayed = []string{"x-order"} })
	for i, want := range [][]string{sent, append(kept, "Idempotent-Replayed")} {
		got := sh.pay("k").Result().Header
		for _, name := range want {
			if vs := got[name]; name != "Idempotent-Replayed" && fmt.Sprint(vs) != "[1 2]" {
				t.Errorf("answer %d has %s: %v", i, name, vs)
			}
		}
		if len(got) != len(want) {
			t.Errorf("answer %d has %v; want %v", i, got, want)
		}
	}
}

func largeAnswer(t *testing.T, s Surface) {
	whole := strings.Repeat("0123456789", 1000)
	sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(whole); i += 10 {
			_, _ = io.WriteString(w, whole[i:i+10])
		}
	}, func(w *Wrap) { w.Once.MaxBytes = len(whole) - 1 })
	sh.mustGet(sh.pay("k"), 200, whole, false)
	sh.mustRefuse(sh.pay("k"), 422, "IDEMPOTENCY_NO_REPLAY")
	sh.mustHaveRun(1)
}

func panicSendsNothing(t *testing.T, s Surface) {
	for _, died := range []idempotent.DiedMode{idempotent.Refuse, idempotent.Rerun} {
		synctest.Test(t, func(t *testing.T) {
			var sh *shop
			sh = openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Half", "1")
				_, _ = io.WriteString(w, "half")
				if sh.runs.Load() == 1 {
					panic(http.ErrAbortHandler)
				}
			}, func(w *Wrap) { w.Once.Died = died })
			w := httptest.NewRecorder()
			func() {
				defer func() {
					if v := recover(); v != http.ErrAbortHandler {
						t.Errorf("the panic is %v", v)
					}
				}()
				sh.handler.ServeHTTP(w, sh.request("1 EUR", "k"))
			}()
			if w.Body.Len() > 0 || len(w.Header()) > 0 || w.Flushed {
				t.Errorf("the client got %v %q", w.Header(), w.Body)
			}
			time.Sleep(2 * time.Second)
			if died == idempotent.Refuse {
				sh.mustRefuse(sh.pay("k"), 422, "IDEMPOTENCY_UNKNOWN")
				sh.mustHaveRun(1)
				return
			}
			sh.mustGet(sh.pay("k"), 200, "half", false)
			sh.mustGet(sh.pay("k"), 200, "half", true)
			sh.mustHaveRun(2)
		})
	}
}

// statuses lets a handler answer with the status that its request names.
func statuses(t *testing.T, s Surface, change func(*Wrap), runsAgain func(status int) bool) {
	t.Helper()
	sh := openShop(t, s, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Fscan(r.Body, &status)
		w.WriteHeader(status)
	}, change)
	for _, status := range []int{200, 201, 202, 204, 301, 304, 400, 401, 404, 408, 409, 422, 423, 425, 428, 429, 499, 500, 502, 503, 504, 599} {
		before := sh.runs.Load()
		for i := range 2 {
			key := fmt.Sprint("k", status)
			sh.mustGet(sh.ask(sh.request(fmt.Sprint(status), key)), status, "", i == 1 && !runsAgain(status))
		}
		if again := sh.runs.Load() == before+2; again != runsAgain(status) {
			t.Errorf("%d: runs again: %v", status, again)
		}
	}
}

func statusRunsAgain(t *testing.T, s Surface) {
	statuses(t, s, nil, func(status int) bool { return status >= 500 || status == 409 || status == 425 || status == 429 })
}

func keptAsTheOptionSays(t *testing.T, s Surface) {
	kept := func(status int) bool { return status == 201 || status == 503 }
	statuses(t, s, func(w *Wrap) { w.Kept = kept }, func(status int) bool { return !kept(status) })
}

func storeIsDown(t *testing.T, s Surface) {
	synctest.Test(t, func(t *testing.T) {
		sh := openShop(t, s, nil, nil)
		sh.records.down.Store(true)
		sh.mustRefuse(sh.pay("k"), 503, "IDEMPOTENCY_UNAVAILABLE")
		sh.mustHaveRun(0)
		sh.records.down.Store(false)
		time.Sleep(10 * time.Second) // what it tries in the background has ended
		sh.mustGet(sh.pay("k"), 201, "run 1", false)
		sh.mustGet(sh.pay("k"), 201, "run 1", true)
	})
}

func cannotBeStored(t *testing.T, s Surface) {
	synctest.Test(t, func(t *testing.T) {
		var sh *shop
		sh = openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
			sh.records.down.Store(true)
			_, _ = io.WriteString(w, "paid")
		}, nil)
		sh.mustGet(sh.pay("k"), 200, "paid", false)
		sh.records.down.Store(false)
		sh.mustRefuse(sh.pay("k"), 422, "IDEMPOTENCY_UNKNOWN")
		sh.mustHaveRun(1)
		time.Sleep(10 * time.Second) // what it tries in the background has ended
	})
}

func duplicate(t *testing.T, s Surface) {
	synctest.Test(t, func(t *testing.T) {
		for i, wait := range []time.Duration{0, time.Second, time.Minute} {
			var sh *shop
			sh = openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(20 * time.Second)
				_, _ = fmt.Fprintf(w, "run %d", sh.runs.Load())
			}, func(w *Wrap) { w.Policy.Wait = wait })
			var all sync.WaitGroup
			all.Go(func() { sh.mustGet(sh.pay("k"), 200, "run 1", false) })
			synctest.Wait()
			time.Sleep(3 * time.Second)
			for range 10 {
				all.Go(func() {
					switch a := sh.pay("k"); i {
					case 0:
						sh.mustRefuse(a, 409, "LOCK_BUSY")
					case 1:
						sh.mustRefuse(a, 409, "LOCK_TIMEOUT")
					default:
						sh.mustGet(a, 200, "run 1", true)
					}
				})
			}
			all.Wait()
			sh.mustGet(sh.pay("k"), 200, "run 1", true)
			sh.mustHaveRun(1)
		}
	})
}

func heldBack(t *testing.T, s Surface) {
	sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "1")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusAccepted)
		for range 1000 {
			_, _ = io.WriteString(w, "0123456789")
			_ = http.NewResponseController(w).Flush()
		}
	}, nil)
	w := httptest.NewRecorder()
	stored := false
	sh.records.stored = func(answer []byte) []byte {
		stored = true
		if w.Flushed || w.Body.Len() > 0 || len(w.Header()) > 0 {
			t.Errorf("the client has %v %q before the answer is stored", w.Header(), w.Body)
		}
		return answer
	}
	sh.handler.ServeHTTP(w, sh.request("1 EUR", "k"))
	if sh.mustGet(w, 202, strings.Repeat("0123456789", 1000), false); !stored || w.Flushed {
		t.Errorf("stored: %v, flushed: %v", stored, w.Flushed)
	}
}

func lostLock(t *testing.T, s Surface) {
	synctest.Test(t, func(t *testing.T) {
		var sh *shop
		sh = openShop(t, s, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", "a=b")
			_, _ = io.WriteString(w, "paid")
			sh.locks.Expire("test/pay:a:k")
			<-r.Context().Done()
			// A later run has begun: what this one comes to is not the answer.
			if err := sh.records.Forget(context.Background(), "pay:a:k"); err != nil {
				t.Error(err)
			}
			if _, err := sh.records.Begin(context.Background(), "pay:a:k", idempotent.Claim{Run: idempotent.Run{1}, Token: 1 << 62, Alone: time.Second, Keep: time.Minute}); err != nil {
				t.Error(err)
			}
		}, nil)
		w := sh.pay("k")
		sh.mustRefuse(w, 500, "LOCK_LOST")
		if w.Header().Get("Set-Cookie") != "" || strings.Contains(w.Body.String(), "paid") {
			t.Errorf("the client got %v %s", w.Header(), w.Body)
		}
	})
}

func toldOfRecords(t *testing.T, s Surface) {
	var told error
	sh := openShop(t, s, nil, func(w *Wrap) {
		w.OnError = func(w http.ResponseWriter, _ *http.Request, err error) {
			told = err
			w.WriteHeader(http.StatusTeapot)
		}
	})
	sh.mustGet(sh.pay("k"), 201, "run 1", false)
	sh.mustGet(sh.ask(sh.request("2 EUR", "k")), 418, "", false)
	var e *idempotent.Error
	if !errors.As(told, &e) || !errors.Is(told, idempotent.ErrMismatch) || e.Policy != "pay" {
		t.Errorf("told %v", told)
	}
}

func garbledRecord(t *testing.T, s Surface) {
	for i, garble := range []func([]byte) []byte{
		func([]byte) []byte { return []byte("1") },
		func(b []byte) []byte { return append([]byte{b[0], 2}, b[2:]...) },
		func(b []byte) []byte { return b[:3] },
		func(b []byte) []byte { return append([]byte("2"), b[1:]...) },
		func(b []byte) []byte { return []byte(strings.Replace(string(b), "Content-Type", "Content-Date", 1)) },
		func([]byte) []byte { return []byte("1\x01\xc8\x01\x01\x0aSet-Cookie\x01apaid") },
	} {
		sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "paid")
		}, nil)
		sh.records.stored = garble
		sh.mustGet(sh.pay("k"), 200, "paid", false)
		if w := sh.pay("k"); i == 4 { // another header's name is no garbage
			sh.mustGet(w, 200, "paid", true)
		} else {
			sh.mustRefuse(w, 422, "IDEMPOTENCY_NO_REPLAY")
		}
		sh.mustHaveRun(1)
	}
}

func lockInside(t *testing.T, s Surface) {
	e, _ := Open(t)
	sh := openShop(t, s, TellKey, nil, Wrap{Engine: e, Policy: core.Policy{Key: "account:{path.account}"}})
	sh.mustGet(sh.pay("k"), 200, "account:a", false)
	sh.mustGet(sh.pay("k"), 200, "account:a", true)
	release := Hold(t, e, "account:a")
	sh.mustRefuse(sh.pay("l"), 409, "LOCK_BUSY")
	release()
	sh.mustGet(sh.pay("l"), 200, "account:a", false) // a conflict is not kept
}

func lostLockInside(t *testing.T, s Surface) {
	synctest.Test(t, func(t *testing.T) {
		e, locks := Open(t)
		sh := openShop(t, s, func(_ http.ResponseWriter, r *http.Request) {
			locks.Expire("test/account:a")
			<-r.Context().Done()
		}, nil, Wrap{Engine: e, Policy: core.Policy{Key: "account:{path.account}"}})
		sh.mustRefuse(sh.pay("k"), 500, "LOCK_LOST")
		time.Sleep(3 * time.Second)
		sh.mustRefuse(sh.pay("k"), 422, "IDEMPOTENCY_UNKNOWN")
		sh.mustHaveRun(1)
	})
}

func consumedBody(t *testing.T, s Surface) {
	for name, before := range map[string]func(*http.Request){
		"all":    func(r *http.Request) { _, _ = io.ReadAll(r.Body) },
		"a form": func(r *http.Request) { _ = r.ParseForm() },
		"a part": func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 3)) },
	} {
		for _, length := range []int64{9, -1} {
			if name != "a form" && length < 0 {
				continue // nobody can tell
			}
			sh := openShop(t, s, nil, nil)
			srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				before(r)
				sh.handler.ServeHTTP(w, r)
			}))
			req := NewRequest(t, srv, http.MethodPost, "/accounts/a/payments", "cents=100", "Idempotency-Key", "k", "Content-Type", "application/x-www-form-urlencoded")
			if req.ContentLength = length; length < 0 {
				req.Body, req.GetBody = io.NopCloser(strings.NewReader("cents=100")), nil
			}
			if a := Send(t, srv, req); a.Status != 400 {
				t.Errorf("%s was read before, length %d: got %+v", name, length, a)
			}
			sh.mustHaveRun(0)
		}
	}
}

func unguessedType(t *testing.T, s Surface) {
	sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = io.WriteString(w, "<html>")
	}, nil)
	srv := Serve(t, sh.handler)
	for range 2 {
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/accounts/a/payments", "1 EUR", "Idempotency-Key", "k"))
		if _, guessed := a.Header["Content-Type"]; guessed || a.Body != "<html>" {
			t.Errorf("got %+v", a)
		}
	}
	sh.mustHaveRun(1)
}

func besideCompression(t *testing.T, s Surface) {
	sh := openShop(t, s, nil, nil)
	srv := Serve(t, s.Mount(t,
		Route{Pattern: "POST /before/{account}", Around: []Wrap{{Gzip: true}, sh.wrap}, Handler: sh.handled(nil)},
		Route{Pattern: "POST /behind/{account}", Around: []Wrap{sh.wrap, {Gzip: true}}, Handler: sh.handled(nil)},
	))
	for i, path := range []string{"/before/a", "/behind/b"} {
		for _, replayed := range []string{"", "true"} {
			a := Send(t, srv, NewRequest(t, srv, http.MethodPost, path, "1 EUR", "Idempotency-Key", "k")) // it takes gzip, and reads it
			if a.Status != 201 || a.Body != fmt.Sprint("run ", i+1) || a.Header.Get("Idempotent-Replayed") != replayed {
				t.Errorf("%s: got %+v", path, a)
			}
		}
	}
}

func withoutBody(t *testing.T, s Surface) {
	for _, tc := range []struct {
		name   string
		do     http.HandlerFunc
		status int
		body   string
	}{
		{"nothing at all", func(http.ResponseWriter, *http.Request) {}, 200, ""},
		{"headers alone", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Location", "/1") }, 200, ""},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, 204, ""},
		{"204 and a body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("writing to a 204: %v", err)
			}
		}, 204, ""},
		{"304 and a body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(304)
			if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("writing to a 304: %v", err)
			}
		}, 304, ""},
		{"hints and nothing more", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103) }, 200, ""},
		{"hints and a body", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			_, _ = io.WriteString(w, "x")
		}, 200, "x"},
		{"an empty body", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sh := openShop(t, s, tc.do, nil)
			first := sh.pay("k")
			sh.mustGet(first, tc.status, tc.body, false)
			again := sh.pay("k")
			sh.mustGet(again, tc.status, tc.body, true)
			if got, want := again.Header().Get("Location"), first.Header().Get("Location"); got != want {
				t.Errorf("the location is %q; want %q", got, want)
			}
			sh.mustHaveRun(1)
		})
	}
	sh := openShop(t, s, nil, nil)
	h := s.Mount(t, Route{Pattern: "HEAD /{account}", Around: []Wrap{sh.wrap}, Handler: sh.handled(nil)})
	srv := Serve(t, h)
	for range 2 {
		if a := Send(t, srv, NewRequest(t, srv, http.MethodHead, "/a", "", "Idempotency-Key", "k")); a.Status != 201 || a.Body != "" || a.Header.Get("Content-Length") != "5" {
			t.Errorf("got %+v", a)
		}
	}
	sh.mustHaveRun(1)
}

func filterRunsTwice(t *testing.T, s Surface) {
	sh := openShop(t, s, nil, func(w *Wrap) { w.Filter = func(*http.Request) bool { return false } })
	sh.mustGet(sh.ask(sh.request("1 EUR")), 201, "run 1", false)
	sh.mustGet(sh.ask(sh.request("1 EUR")), 201, "run 2", false)
}

// cannotLeave tries what a handler can to send before it has returned.
func cannotLeave(t *testing.T, s Surface) {
	sh := openShop(t, s, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("hijacking: %v", err)
		}
		if s.Answered(w) {
			t.Error("it has answered before it has")
		}
		if err := errors.Join(c.SetWriteDeadline(time.Now().Add(time.Hour)), c.SetReadDeadline(time.Now().Add(time.Hour))); err != nil {
			t.Error(err)
		}
		if err := c.Flush(); err != nil || !s.Answered(w) {
			t.Errorf("flushing: %v, answered: %v", err, s.Answered(w))
		}
		w.WriteHeader(http.StatusTeapot) // too late
		_, _ = io.WriteString(w, "paid")
	}, nil)
	srv := Serve(t, sh.handler)
	for range 2 {
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/accounts/a/payments", "1 EUR", "Idempotency-Key", "k"))
		if a.Status != 200 || a.Body != "paid" {
			t.Errorf("got %+v", a)
		}
	}
	sh.mustHaveRun(1)
}
