package lockpage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestOnlyTheButtonOfThePageReleases(t *testing.T) {
	c := openCounter(t)
	lease := c.hold()
	if f := c.form(""); len(f) > 0 {
		t.Errorf("who may not release has the form %v", f)
	}
	f := c.form("dana")
	if len(f) != 3 {
		t.Fatalf("the form is %v", f)
	}
	with := func(name, value string) url.Values {
		g := url.Values{}
		for k := range f {
			g.Set(k, f.Get(k))
		}
		g.Set(name, value)
		return g
	}
	for name, try := range map[string]struct {
		who    string
		form   url.Values
		change func(*http.Request)
		status int
	}{
		"cross-site":                {"dana", f, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"of a neighbouring site":    {"dana", f, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"another origin":            {"dana", f, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }, 403},
		"without any origin":        {"dana", f, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 403},
		"an opaque origin":          {"dana", f, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }, 403},
		"by nobody":                 {"", f, nil, 403},
		"by somebody else":          {"eve", f, nil, 403},
		"without a token":           {"dana", with("token", ""), nil, 403},
		"with another token":        {"dana", with("token", strings.Repeat("A", len(f.Get("token")))), nil, 403},
		"for another key":           {"dana", with("id", "000000000000"), nil, 403},
		"for another holder":        {"dana", with("held", "1"), nil, 403},
		"a form that is too large":  {"dana", with("x", strings.Repeat("x", mostPosted)), nil, 400},
		"values in the URL":         {"dana", nil, func(r *http.Request) { r.URL.RawQuery = f.Encode() }, 403},
		"a form that is not parsed": {"dana", f, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 403},
	} {
		var change []func(*http.Request)
		if try.change != nil {
			change = append(change, try.change)
		}
		if w := post(t, c.page, try.who, try.form, change...); w.Code != try.status {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, try.status, w.Body)
		}
		if err := lease.Err(); err != nil {
			t.Fatalf("%s: the lock was taken: %v", name, err)
		}
	}
	if c.log.String() != "" {
		t.Errorf("logged: %s", c.log)
	}

	w := post(t, c.page, "dana", f, func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://shop.example") })
	if w.Code != 200 || !strings.Contains(w.Body.String(), "Released by force") {
		t.Fatalf("the button: %d %s", w.Code, w.Body)
	}
	<-lease.Done()
	if n := strings.Count(c.log.String(), "a lock was released by force"); n != 1 || !strings.Contains(c.log.String(), "lock.operator=dana") || strings.Contains(c.log.String(), "stock:book") {
		t.Errorf("logged:\n%s", c.log)
	}
	next := c.hold()
	if w := post(t, c.page, "dana", f); w.Code != 403 || !strings.Contains(w.Body.String(), "used before") {
		t.Errorf("replayed: %d %s", w.Code, w.Body)
	}
	if next.Err() != nil {
		t.Error("a replayed request has taken the lock of the next holder")
	}
}

func TestButtonIsForTheHolderThatThePageHasShown(t *testing.T) {
	c := openCounter(t)
	first := c.hold()
	f := c.form("dana")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := c.hold()
	if w := post(t, c.page, "dana", f); w.Code != 409 || !strings.Contains(w.Body.String(), "no longer") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if next.Err() != nil {
		t.Error("the next holder has lost the lock")
	}
}

// The page has looked at the key for the last time, and then it changes hands.
func TestButtonSparesAHolderWhoComesWhileItIsUsed(t *testing.T) {
	d := &inspected{memlock.New(), func() error { return nil }}
	c := openCounterOn(t, d)
	first := c.hold()
	f := c.form("dana")
	var next *core.Lease
	looks := 0
	d.before = func() error {
		if looks++; looks == 2 {
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
			next = c.hold()
		}
		return nil
	}
	w := post(t, c.page, "dana", f)
	if next == nil {
		t.Fatalf("looked at %d times: %d %s", looks, w.Code, w.Body)
	}
	if err := next.Check(t.Context()); err != nil || w.Code != 409 {
		t.Errorf("a holder whom the page has not shown: %v; %d %s", err, w.Code, w.Body)
	}
}

func TestButtonSaysWhoLosesTheKey(t *testing.T) {
	for name, try := range map[string]struct {
		policy      core.Policy
		hold, leave int
		want        string
	}{
		"exclusive":            {core.Policy{Key: "k"}, 1, 0, "The holder with fencing token"},
		"semaphore":            {core.Policy{Key: "k", Mode: core.Semaphore, Limit: 5}, 4, 2, "All holders lose the key: 2, with the fencing tokens"},
		"semaphore of one":     {core.Policy{Key: "k", Mode: core.Semaphore, Limit: 5}, 1, 0, "All holders lose the key: one, with fencing token"},
		"readers of a process": {core.Policy{Key: "k", Mode: core.Shared}, 3, 0, "All holders lose the key: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := openCounter(t)
			var held []string
			for i := range try.hold {
				l, err := c.locks.Acquire(t.Context(), try.policy)
				if err != nil {
					t.Fatal(err)
				}
				if try.hold-i <= try.leave { // those with the largest tokens
					if err := l.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					continue
				}
				defer func() {
					if err := l.Release(context.Background()); !errors.Is(err, core.ErrLost) {
						t.Errorf("holder %d has not lost the key: %v", i, err)
					}
				}()
				held = append(held, strconv.FormatInt(l.Token(), 10))
			}
			list := c.ask("dana", "/")
			text := c.ask("dana", "/key?id="+codeIn(t, list))
			p := regexp.MustCompile(`<p>[^\n]*los[^\n]*</p>`).FindString(text)
			if !strings.Contains(p, try.want) {
				t.Errorf("the form says %s", p)
			}
			var said []string
			for _, m := range regexp.MustCompile(`<span class="mono">(\d+)</span>`).FindAllStringSubmatch(p, -1) {
				said = append(said, m[1])
			}
			slices.Sort(held)
			slices.Sort(said)
			if !slices.Equal(said, slices.Compact(held)) {
				t.Errorf("the form names the tokens %v; held by %v", said, held)
			}
			if w := post(t, c.page, "dana", c.form("dana")); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// trickle is a body that does not come.
type trickle struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
}

func (c *trickle) SetReadDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

func (c *trickle) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestFormThatDoesNotComeIsGivenUp(t *testing.T) {
	c := openCounter(t)
	w := &trickle{ResponseRecorder: httptest.NewRecorder()}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://shop.example/debug/locks/release", w)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("X-Operator", "dana")
	c.page.ServeHTTP(w, r)
	if len(w.deadlines) != 1 || w.Code != 400 {
		t.Fatalf("%d, deadlines %v", w.Code, w.deadlines)
	}
	if left := time.Until(w.deadlines[0]); left <= 0 || left > slowest {
		t.Errorf("its deadline is in %v", left)
	}
}

// A proxy gives the service a Host of its own, and the browser sends no Sec-Fetch-Site.
func TestButtonWorksBehindAProxyThatHidesTheHostIfItsOriginIsTrusted(t *testing.T) {
	from := func(origin string) func(*http.Request) {
		return func(r *http.Request) {
			r.Host = "backend.internal:8080"
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", origin)
		}
	}
	c := openCounter(t)
	lease := c.hold()
	if w := post(t, c.page, "dana", c.form("dana"), from("http://ops.shop.example")); w.Code != 403 || !strings.Contains(w.Body.String(), "WithTrustedOrigins") {
		t.Errorf("without the option: %d %s", w.Code, w.Body)
	}
	trusting := newPage(c.locks, compiled(t, c.locks, WithRelease(byHeader), WithTrustedOrigins("http://ops.shop.example")))
	trusting.hub.linger, trusting.hub.first = 0, 0
	c.page = trusting
	if w := post(t, c.page, "dana", c.form("dana"), from("http://evil.example")); w.Code != 403 {
		t.Errorf("from another origin: %d %s", w.Code, w.Body)
	}
	if w := post(t, c.page, "dana", c.form("dana"), from("null")); w.Code != 403 {
		t.Errorf("from an opaque origin: %d %s", w.Code, w.Body)
	}
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	if w := post(t, c.page, "dana", c.form("dana"), from("http://ops.shop.example")); w.Code != 200 {
		t.Errorf("from the origin that is trusted: %d %s", w.Code, w.Body)
	}
}

func TestTokenIsForOneUseAndAShortTime(t *testing.T) {
	s, now := newSealer(nil), time.Unix(1_800_000_000, 0)
	open := func(s *sealer, now time.Time, token string, parts ...string) error {
		if err := s.check(now, token, parts...); err != nil {
			return err
		}
		if err := s.check(now, token, parts...); err != nil {
			t.Errorf("a look uses it up: %v", err)
		}
		return s.use(now, token)
	}
	use := func(at time.Duration, token string, parts ...string) error {
		return open(s, now.Add(at), token, parts...)
	}
	token := s.seal(now, "a", "b")
	for what, err := range map[string]error{
		"other parts":          use(0, token, "a", "c"),
		"parts run together":   use(0, token, "ab", ""),
		"another secret":       open(newSealer(nil), now, token, "a", "b"),
		"cut":                  use(0, token[:len(token)-1], "a", "b"),
		"not base64":           use(0, token[:len(token)-1]+"!", "a", "b"),
		"too late":             use(sealTime+time.Second, token, "a", "b"),
		"before it was made":   use(-time.Hour, token, "a", "b"),
		"with something added": use(0, token+"A", "a", "b"),
	} {
		if err == nil {
			t.Errorf("%s: the token is taken", what)
		}
	}
	if err := use(sealTime, token, "a", "b"); err != nil {
		t.Errorf("the token is refused: %v", err)
	}
	if err := use(sealTime, token, "a", "b"); err != errSealUsed {
		t.Errorf("a second time: %v", err)
	}
	for i := range mostUsed + 100 {
		_ = use(0, s.seal(now, "a"), "a")
		if len(s.used) > mostUsed {
			t.Fatalf("%d tokens are kept after %d", len(s.used), i)
		}
	}
	if err := use(2*sealTime, s.seal(now.Add(2*sealTime), "a"), "a"); err != nil || len(s.used) != 1 {
		t.Errorf("later: %v, %d kept", err, len(s.used))
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	plain, forcing := engine(t), engine(t, core.WithForceRelease())
	for want, try := range map[string]struct {
		locks *core.Engine
		opts  []Option
	}{
		"engine is nil":             {nil, nil},
		"WithForceRelease":          {plain, []Option{WithRelease(byHeader)}},
		"WithRelease(nil)":          {forcing, []Option{WithRelease(nil)}},
		"WithViewers(nil)":          {plain, []Option{WithViewers(nil)}},
		"WithStreams(0)":            {plain, []Option{WithStreams(0)}},
		"such as https://":          {plain, []Option{WithTrustedOrigins("ops.shop.example")}},
		"at least 16":               {plain, []Option{WithSecret([]byte("short"))}},
		"panel 1 is nil":            {plain, []Option{WithPanels(nil)}},
		"ShowKeys is given twice":   {plain, []Option{ShowKeys(), nil, ShowKeys()}},
		"WithPanels is given twice": {plain, []Option{WithPanels(), WithPanels()}},
	} {
		if _, err := New(try.locks, try.opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if _, err := New(forcing, WithRelease(byHeader), nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "engine is nil") {
			t.Errorf("Handler panics with %v", r)
		}
	}()
	Handler(nil)
}
