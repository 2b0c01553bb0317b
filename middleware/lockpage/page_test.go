package lockpage

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/watch"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

// wanted is a view with one key that is held and waited for.
func wanted(name string) watch.View {
	now := time.Now()
	return watch.View{
		At: now, Window: 5 * time.Minute,
		Processes: []watch.Process{{Identity: "shop-1", Instance: "a", Self: true, Held: 1}, {Identity: "shop-2", Instance: "b", Waiting: 1, Heard: now}, {Identity: "shop-3", Instance: "c", Gone: now.Add(-20 * time.Second)}},
		Policies:  []watch.Policy{{Name: "deduct", Counts: watch.Counts{Taken: 12, Lost: 1, Refused: 2, TimedOut: 3}}},
		Keys: []watch.Key{{
			Key: name, Policies: []string{"deduct"}, Holding: 1, Waiting: 1,
			Holders: []watch.Holder{{Identity: "shop-1", Instance: "a", Self: true, Policy: "deduct", Token: 41, Since: now.Add(-3 * time.Second), Until: now.Add(20 * time.Second), Renewals: 2}},
			Waiters: []watch.Waiter{{Identity: "shop-2", Instance: "b", Policy: "deduct", Since: now.Add(-2500 * time.Millisecond)}},
			Counts:  watch.Counts{Taken: 12, HandedOff: 5},
			Events:  []watch.Event{{At: now.Add(-3 * time.Second), Kind: watch.Taken, Identity: "shop-1", Instance: "a", Token: 41}},
		}},
	}
}

// get asks a handler for a page.
func get(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// codeIn returns the code of the first key that a page links to.
func codeIn(t testing.TB, page string) string {
	t.Helper()
	m := regexp.MustCompile(`key\?id=([0-9a-f]{12})"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no key is linked to:\n%s", page)
	}
	return m[1]
}

func TestPageSaysWhoHoldsAndWhoWaits(t *testing.T) {
	s := &scene{view: wanted("stock:book")}
	p := s.page(t, ShowKeys())
	w := get(t, p, "/debug/locks/")
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("got %d %v", w.Code, w.Header())
	}
	for _, want := range []string{"stock:book", "deduct", "shop-1", "gone", ">2.5 s<", ">3.0 s<", "20 s<", "1 gone"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page does not say %q:\n%s", want, w.Body)
		}
	}
	one := get(t, p, "/debug/locks/key?id="+codeIn(t, w.Body.String()))
	for _, want := range []string{"stock:book", "shop-2", "taken", ">41<", "exclusive"} {
		if !strings.Contains(one.Body.String(), want) {
			t.Errorf("the key's page does not say %q:\n%s", want, one.Body)
		}
	}
	if strings.Contains(one.Body.String(), "<form") {
		t.Error("there is a button that nobody has asked for")
	}
}

func TestPageSaysFirstThatTheStoreFails(t *testing.T) {
	v := wanted("stock:book")
	v.Store = watch.Store{Driver: "redis", Namespace: "shop:prod", Failing: v.At.Add(-90 * time.Second), Fault: "dial tcp 10.0.0.1:6379: <refused>"}
	v.Processes[1].Heard = v.At.Add(-80 * time.Second)
	v.Keys[0].Holders, v.Keys[0].Waiters = nil, nil
	s := &scene{view: v}
	text := get(t, s.page(t, ShowKeys()), "/").Body.String()
	for _, want := range []string{`class="alarm"`, "1 m 30 s", "does not answer", "10.0.0.1:6379: &lt;refused&gt;", "shop:prod", "redis", ">unknown<", "unknown, last heard of"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, ">free<") || strings.Index(text, `class="alarm"`) > strings.Index(text, `class="totals"`) {
		t.Errorf("the page is calm:\n%s", text)
	}
	v.Store.Refuses = true
	if text := get(t, (&scene{view: v}).page(t), "/").Body.String(); strings.Contains(text, "does not answer") || !strings.Contains(text, "will not do what locks need") {
		t.Errorf("of a store that answers:\n%s", text)
	}
}

func TestWhoStandsByDoesNotWait(t *testing.T) {
	v := wanted("stock:book")
	w := &v.Keys[0].Waiters[0]
	w.Standby, w.Since = true, v.At.Add(-time.Hour)
	list := get(t, (&scene{view: v}).page(t), "/").Body.String()
	if strings.Contains(list, ">1 h 00 m<") || !strings.Contains(list, "1 standing by") || !strings.Contains(list, "<dt>standing by</dt><dd>1</dd>") || !strings.Contains(list, "<dt>waiting</dt><dd>0</dd>") {
		t.Errorf("a candidate for a leader is shown as one who waits:\n%s", list)
	}
}

func TestWaitIsMarkedOnceItIsHalfOfWhatThePolicyGives(t *testing.T) {
	for wait, marked := range map[time.Duration]bool{time.Minute: false, 4 * time.Second: true, 0: false, core.Forever: false} {
		v := wanted("stock:book") // it has waited for 2.5 s
		v.Keys[0].Waiters[0].Wait = wait
		if text := get(t, (&scene{view: v}).page(t), "/").Body.String(); strings.Contains(text, `class="n wait"`) != marked {
			t.Errorf("a wait of 2.5 s of %v: marked is %v", wait, !marked)
		}
	}
}

func TestTimesOfAProcessThatIsSilentStandStill(t *testing.T) {
	v := wanted("stock:book")
	v.Processes[1].Heard = v.At.Add(-5 * time.Second)
	v.Keys[0].Waiters[0].Since = v.At.Add(-7 * time.Second)
	if text := get(t, (&scene{view: v}).page(t), "/").Body.String(); !strings.Contains(text, ">≥ 2.0 s</time>") || strings.Contains(text, ">7.0 s<") {
		t.Errorf("a wait grows that nobody has told of:\n%s", text)
	}
}

func TestWaitStandsStillAtWhatThePolicyGives(t *testing.T) {
	v := wanted("stock:book")
	v.Keys[0].Waiters[0].Since, v.Keys[0].Waiters[0].Wait = v.At.Add(-3*time.Second), 2*time.Second
	if text := get(t, (&scene{view: v}).page(t), "/").Body.String(); strings.Count(text, `title="as last heard">2.0 s</time>`) != 3 || !strings.Contains(text, `class="n wait"`) {
		t.Errorf("nobody waits for longer than Wait:\n%s", text)
	}
}

// The page asks the store by itself, so that it says what fails also where nobody locks.
func TestPageOfAProcessThatLocksNothingSaysThatTheStoreFails(t *testing.T) {
	store := memlock.New()
	store.Fail(errors.New("connection refused"))
	defer store.Fail(nil)
	h := Handler(engineOn(t, store, core.WithLogger(slog.New(slog.DiscardHandler))))
	defer func() {
		p := h.(*page)
		p.hub.mu.Lock()
		last := p.hub.present
		p.hub.mu.Unlock()
		last.stop()
		<-last.over
	}()
	eventually(t, "the alarm", func() bool { return strings.Contains(get(t, h, "/").Body.String(), "connection refused") })
}

func TestPageSaysWhatAPolicyComesToInEachProcess(t *testing.T) {
	v := wanted("stock:book")
	v.Store = watch.Store{Driver: "redis", Namespace: "shop:prod", Address: "10.0.0.5:6379"}
	own := watch.Settings{Wait: 2 * time.Second, TTL: 30 * time.Second, Self: true, Processes: 1}
	v.Policies[0].Settings = []watch.Settings{own}
	text := get(t, (&scene{view: v}).page(t), "/").Body.String()
	for _, want := range []string{"redis at <bdi>10.0.0.5:6379</bdi>", `<small class="set">exclusive · Wait 2s · TTL 30s</small>`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	v.Policies[0].Settings = append(v.Policies[0].Settings, watch.Settings{
		Mode: core.Semaphore, Limit: 3, Wait: core.Forever, TTL: time.Minute, MaxHold: time.Minute, Strict: true, Overridden: []string{"Wait", "Mode"}, Processes: 2,
	})
	text = get(t, (&scene{view: v}).page(t), "/").Body.String()
	for _, want := range []string{"1 process, this one too: exclusive", "2 processes: semaphore of 3 (override) · Wait forever (override) · TTL 1m0s · MaxHold 1m0s · Strict"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
}

func TestPolicyWithMoreCallersThanAreShownHasAtLeastThose(t *testing.T) {
	if text := get(t, (&scene{view: wanted("k")}).page(t), "/").Body.String(); strings.Contains(text, ">1+<") {
		t.Errorf("all callers are shown:\n%s", text)
	}
	v := wanted("k")
	v.Keys[0].Waiting = 2_000
	if text := get(t, (&scene{view: v}).page(t), "/").Body.String(); strings.Count(text, ">1+<") != 2 || !strings.Contains(text, ">2000") {
		t.Errorf("of 2000 waiters one is shown:\n%s", text)
	}
}

func TestMaskedKeyIsOnNoPage(t *testing.T) {
	s := &scene{view: wanted("stock:secret-sku")}
	p := s.page(t)
	list := get(t, p, "/").Body.String()
	code := codeIn(t, list)
	for _, text := range []string{list, get(t, p, "/key?id="+code).Body.String(), get(t, p, "/key?id=stock:secret-sku").Body.String()} {
		if strings.Contains(text, "secret") {
			t.Errorf("the key is shown:\n%s", text)
		}
	}
	if !strings.Contains(list, "deduct "+code[:6]) {
		t.Errorf("the key cannot be told from others:\n%s", list)
	}
	if again := codeIn(t, get(t, s.page(t), "/").Body.String()); again == code {
		t.Error("two secrets make the same code")
	}
	shared := WithSecret([]byte("0123456789abcdef"))
	if a, b := codeIn(t, get(t, s.page(t, shared), "/").Body.String()), codeIn(t, get(t, s.page(t, shared), "/").Body.String()); a != b {
		t.Errorf("replicas with one secret have the codes %s and %s", a, b)
	}
}

func TestUnknownKeyAndPageAreNotFound(t *testing.T) {
	p := (&scene{}).page(t)
	for path, want := range map[string]int{"/key?id=0": 404, "/key": 404, "/nothing": 404, "/style.css": 200, "/page.js": 200, "/icon.svg": 200, "/head.html": 404, "/": 200, "/a/b/": 200, "/..": 404} {
		if got := get(t, p, path).Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

func TestOtherMethodsAreRefusedAndHeadHasNoBody(t *testing.T) {
	p := (&scene{}).pageOf(t, engine(t, core.WithForceRelease()), WithRelease(nobody))
	for path, allow := range map[string]string{"/": "GET, HEAD", "/key": "GET, HEAD", "/events": "GET", "/style.css": "GET, HEAD", "/release": "POST"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"} {
			if strings.Contains(", "+allow+",", ", "+method+",") {
				continue
			}
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			if w.Code != 405 || w.Header().Get("Allow") != allow {
				t.Errorf("%s %s: %d, Allow %q; want 405, %q", method, path, w.Code, w.Header().Get("Allow"), allow)
			}
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "HEAD", "/", nil))
	if w.Code != 200 || w.Body.Len() > 0 || w.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// What a browser may do with a page is what the page needs, and a number that only it has is
// on each script and style.
func TestPagesHaveAStrictPolicy(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.page(t)
	nonce := regexp.MustCompile(`'nonce-([A-Z0-9]{26})'`)
	seen := map[string]bool{}
	for _, path := range []string{"/", "/", "/key?id=none", "/events-nothing", "/style.css"} {
		w := get(t, p, path)
		policy := w.Header().Get("Content-Security-Policy")
		for _, bad := range []string{"unsafe", "*", "http"} {
			if strings.Contains(policy, bad) {
				t.Errorf("%s: %s", path, policy)
			}
		}
		if !strings.HasPrefix(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, w.Header())
		}
		m := nonce.FindStringSubmatch(policy)
		if m == nil {
			continue
		}
		if seen[m[1]] {
			t.Errorf("%s: the nonce is used again", path)
		}
		seen[m[1]] = true
		if n := strings.Count(w.Body.String(), `nonce="`+m[1]+`"`); n != 2 {
			t.Errorf("%s: the nonce is on %d elements", path, n)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d pages have a nonce", len(seen))
	}
	for _, file := range []string{"head.html", "overview.html", "key.html"} {
		text, err := assets.ReadFile("assets/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if m := regexp.MustCompile(`(?i)\sstyle=|\son[a-z]+=|<style|https?://|javascript:`).FindString(string(text)); m != "" {
			t.Errorf("%s has %q, which the policy forbids", file, m)
		}
	}
	if script, err := assets.ReadFile("assets/page.js"); err != nil || len(script) > 15_000 {
		t.Errorf("the script has %d bytes, %v", len(script), err)
	}
}

func TestWhoMayNotLookSeesNothing(t *testing.T) {
	s := &scene{view: wanted("k")}
	p := s.pageOf(t, engine(t, core.WithForceRelease()), ShowKeys(), WithViewers(func(r *http.Request) bool { return r.Header.Get("X-Operator") != "" }), WithRelease(nobody))
	for _, path := range []string{"/", "/key", "/events", "/style.css"} {
		if w := get(t, p, path); w.Code != 403 || strings.Contains(w.Body.String(), "deduct") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if w := post(t, p, "", nil); w.Code != 403 {
		t.Errorf("release: %d", w.Code)
	}
	if s.begun > 0 {
		t.Error("the locks were watched for somebody who may not look")
	}
}

func TestPageIsServedUnderEveryPattern(t *testing.T) {
	s := &scene{view: wanted("stock:book")}
	p := s.page(t, ShowKeys())
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", p)
	mux.Handle("/stripped/", http.StripPrefix("/stripped", p))
	router := gin.New()
	router.Any("/ops/locks/*page", gin.WrapH(p))
	mux.Handle("/ops/", router)
	for _, at := range []string{"/debug/locks/", "/stripped/", "/ops/locks/"} {
		w := get(t, mux, at)
		if w.Code != 200 || !strings.Contains(w.Body.String(), "stock:book") {
			t.Errorf("%s: %d", at, w.Code)
		}
		if regexp.MustCompile(`(?:href|src|action)="/`).MatchString(w.Body.String()) {
			t.Errorf("%s: the page names absolute paths", at)
		}
		for _, file := range []string{"style.css", "page.js", "key?id=" + codeIn(t, w.Body.String())} {
			if got := get(t, mux, at+file).Code; got != 200 {
				t.Errorf("%s%s: %d", at, file, got)
			}
		}
	}
	if got := get(t, mux, "/debug/locks").Code; got != 301 && got != 307 {
		t.Errorf("without the slash: %d", got)
	}
}

func TestClosedEngineHasAPageThatSaysSo(t *testing.T) {
	e := engine(t)
	h := Handler(e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if w := get(t, h, "/"); w.Code != 503 || !strings.Contains(w.Body.String(), "cannot be watched") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w := get(t, h, "/events"); w.Code != 503 {
		t.Errorf("events: %d", w.Code)
	}
}
