package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// chromium is the one browser of all tests; each has a profile of its own in it.
var chromium struct {
	once sync.Once
	ctx  context.Context
	stop []func()
	err  error
}

func TestMain(m *testing.M) {
	beAProcess()
	status := m.Run()
	for i := len(chromium.stop) - 1; i >= 0; i-- {
		chromium.stop[i]()
	}
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// patience is more than a busy machine lets a browser wait.
const patience = 10 * time.Minute

func startChromium() {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		chromium.err = exec.ErrNotFound
		return
	}
	dir, err := os.MkdirTemp("", "lockpage")
	if err != nil {
		chromium.err = err
		return
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true))
	alloc, freed := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, closed := chromedp.NewContext(alloc)
	chromium.stop = []func(){func() { _ = os.RemoveAll(dir) }, freed, closed}
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
}

// tab is a browser's window, with what it has asked for and complained of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	faults   []string
}

// open opens a window that ends with the test.
func open(t *testing.T) *tab {
	t.Helper()
	chromium.once.Do(startChromium)
	switch {
	case chromium.err == exec.ErrNotFound && os.Getenv("LOCKAROUND_REQUIRE_SERVERS") != "1":
		t.Skip("needs chromium in PATH")
	case chromium.err != nil:
		t.Fatalf("chromium: %v", chromium.err)
	}
	ctx, closed := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(closed)
	ctx, cancel := context.WithTimeout(ctx, patience)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Do(ctx, command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{})); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

// command is an action that is a command of the browser's protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// hear keeps what the window asks for and complains of.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.faults = append(b.faults, e.Entry.Text)
		}
	}
}

// run does something in the window.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) visit(address string) {
	b.t.Helper()
	b.run(chromedp.Navigate(address))
}

// eval returns the value of an expression of JavaScript.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// do runs a statement of JavaScript.
func (b *tab) do(statement string) {
	b.t.Helper()
	b.run(chromedp.Evaluate[chromedp.Void](statement))
}

// until waits until an expression is true, and says what it waited for if that never happens.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for late := time.Now().Add(patience / 3); ; time.Sleep(20 * time.Millisecond) {
		// While one page gives way to the next there is nothing to ask.
		if is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+expression+")")); err == nil && is {
			return
		} else if time.Now().After(late) || b.ctx.Err() != nil {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			b.t.Fatalf("waiting for %s: %v; the page says:\n%s", what, err, text)
		}
	}
}

// live waits until the page is kept current.
func (b *tab) live() {
	b.t.Helper()
	b.until("the page to be live", `document.getElementById("state").textContent === "page is live"`)
}

// clean fails the test if the window has complained, or has asked another host.
func (b *tab) clean(server string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		b.t.Errorf("the browser complains: %s", f)
	}
	own, err := url.Parse(server)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range b.requests {
		if u, err := url.Parse(r); err != nil || u.Host != own.Host && u.Scheme != "data" && r != "about:blank" {
			b.t.Errorf("the page has asked for %s", r)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("no request was recorded")
	}
}

// service is an engine in memory with its page.
type service struct {
	t     *testing.T
	locks *core.Engine
	url   string // of the page
}

func serve(t *testing.T, engine []core.Option, opts ...lockpage.Option) *service {
	t.Helper()
	locks, err := core.New(memlock.New(), append([]core.Option{core.WithNamespace("shop:test"), core.WithIdentity("shop-1")}, engine...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return &service{t: t, locks: locks, url: host(t, locks, opts...)}
}

// host returns the address of a page of the engine, which ends with the test.
func host(t *testing.T, locks *core.Engine, opts ...lockpage.Option) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", lockpage.Handler(locks, opts...))
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/debug/locks/"
}

// hold takes a key until the test ends, or the function is called.
func (s *service) hold(p core.Policy) (release func()) {
	s.t.Helper()
	lease, err := s.locks.Acquire(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = lease.Release(context.Background()) }) // it may have been taken by force
	s.t.Cleanup(release)
	return release
}

// wait waits for a key until the test ends.
func (s *service) wait(p core.Policy) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	p.Wait = core.Forever
	go func() {
		defer close(over)
		if lease, err := s.locks.Acquire(ctx, p); err == nil {
			_ = lease.Release(ctx)
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-over
	})
}

// has is an expression that is true when an element of the page has the text.
func has(selector, text string) string {
	return fmt.Sprintf("[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))", selector, text)
}

func itoa(n int) string { return strconv.Itoa(n) }
