package browser

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// logged is what was logged, also while more is.
type logged struct {
	mu   sync.Mutex
	text []byte
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func TestOperatorReleasesByForceOnceAndIsNamedInTheLog(t *testing.T) {
	var log logged
	var may atomic.Bool
	may.Store(true)
	s := serve(t, []core.Option{core.WithForceRelease(), core.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))},
		lockpage.ShowKeys(), lockpage.WithRelease(func(*http.Request) (string, bool) { return "dana@example.com", may.Load() }))
	stock := core.Policy{Name: "deduct", Key: "stock:book"}
	lease, err := s.locks.Acquire(t.Context(), stock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lease.Release(context.Background()) }()

	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("the row", has(`[data-s="key"] th`, "stock:book"))
	b.do(`document.querySelector('[data-s="key"] a').click()`)
	b.until("the button", `document.querySelector("details form button") !== null`)
	form := url.Values{}
	for _, name := range []string{"id", "held", "token"} {
		form.Set(name, eval[string](b, `document.querySelector("form [name=`+name+`]").value`))
	}
	replay := func() (status int, text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"release", strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}

	// Another site that has got hold of the token posts it from its own page.
	foreign := open(t)
	other := strings.Replace(s.url, "127.0.0.1", "localhost", 1) // another host is another origin
	foreign.visit(other)
	foreign.do(`(() => {
		const f = document.createElement("form");
		f.method = "post"; f.action = "` + s.url + `release";
		for (const [n, v] of new URLSearchParams("` + form.Encode() + `")) { const i = document.createElement("input"); i.name = n; i.value = v; f.append(i); }
		document.body.append(f); f.submit();
	})()`)
	held := func(when string) {
		t.Helper()
		if lease.Err() != nil {
			t.Fatalf("the lock was taken from its holder: %s", when)
		}
	}
	held("by another origin")

	may.Store(false)
	if status, _ := replay(); status != http.StatusForbidden {
		t.Errorf("who may not release gets %d", status)
	}
	held("by who may not")
	may.Store(true)

	b.run(chromedp.Click(chromedp.CSS("summary")), chromedp.Click(chromedp.CSS("details button")))
	held("without the confirmation")
	b.run(chromedp.Click(chromedp.CSS("details input[type=checkbox]")), chromedp.Click(chromedp.CSS("details button")))
	b.until("the answer", `document.querySelector("h1")?.textContent === "Released by force"`)
	<-lease.Done()
	if n := strings.Count(log.String(), "a lock was released by force"); n != 1 || !strings.Contains(log.String(), "lock.operator=dana@example.com") {
		t.Errorf("the log says it %d times:\n%s", n, log.String())
	}

	next, err := s.locks.Acquire(t.Context(), stock)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = next.Release(context.Background()) }()
	if status, text := replay(); status != http.StatusForbidden || !strings.Contains(text, "used before") {
		t.Errorf("the replayed request gets %d: %s", status, text)
	}
	if next.Err() != nil {
		t.Error("a replayed request has taken the lock from the next holder")
	}
	if n := strings.Count(log.String(), "a lock was released by force"); n != 1 {
		t.Errorf("the log says %d times that a lock was released", n)
	}
	b.clean(s.url)
}
