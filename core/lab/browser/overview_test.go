package browser

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// The row says who holds the key and who waits, and times run on it without a message.
func TestNewWaitShowsOnAPageThatIsOpen(t *testing.T) {
	s := serve(t, nil, lockpage.ShowKeys())
	stock := core.Policy{Name: "deduct", Key: "stock:book"}
	s.hold(stock)
	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("the holder", has("#keys ~ * tr, tbody tr", "stock:book")+"&&"+has("tbody tr", "shop-1"))
	b.until("nobody to wait", `document.querySelector("td.wait") === null`)
	s.wait(stock)
	b.until("the wait", `document.querySelector('[data-s="key"] td.wait time')?.textContent > ""`)
	waited := eval[float64](b, `Date.now() - document.querySelector('[data-s="key"] td.wait time').dataset.t`)
	t.Logf("the wait was on the page %v ms after it began, in a browser on a machine with other work", waited)
	first := eval[string](b, `document.querySelector('[data-s="key"] td.wait time').textContent`)
	b.until("the time to run on", fmt.Sprintf(`document.querySelector('[data-s="key"] td.wait time').textContent !== %q`, first))
	b.clean(s.url)
}

func TestKeysAreMaskedEverywhereUnlessTheyAreToBeShown(t *testing.T) {
	s := serve(t, nil)
	s.hold(core.Policy{Name: "deduct", Key: "stock:secret-sku"})
	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("the row", has(`[data-s="key"] th`, "deduct"))
	for range 2 {
		if all := eval[string](b, "document.documentElement.outerHTML + location.href"); strings.Contains(all, "secret-sku") {
			t.Errorf("the key is on the page: %s", all)
		}
		b.do(`document.querySelector('[data-s="key"] a')?.click()`)
		b.until("the key's page", `location.pathname.endsWith("/key") && document.getElementById("state").textContent === "page is live"`)
	}
	b.clean(s.url)
}

func TestPageWithoutScriptShowsTheSame(t *testing.T) {
	s := serve(t, nil, lockpage.ShowKeys())
	stock := core.Policy{Name: "deduct", Key: "stock:book"}
	s.hold(stock)
	s.wait(stock)
	b := open(t)
	b.run(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.visit(s.url)
	text := func() string { return eval[string](b, "document.body.innerText") }
	for _, want := range []string{"stock:book", "deduct", "shop-1", "Reload", "alive"} {
		if got := text(); !strings.Contains(got, want) {
			t.Errorf("without script the page does not say %q:\n%s", want, got)
		}
	}
	if !eval[bool](b, `[...document.querySelectorAll("time")].length > 3 && [...document.querySelectorAll("time")].every(t => / (ms|s)$|:/.test(t.textContent))`) {
		t.Error("without script times are not told")
	}
	b.run(chromedp.Click(chromedp.CSS(".state a")), chromedp.WaitVisible(chromedp.CSS("#keys")))
	b.run(chromedp.Click(chromedp.CSS(`[data-s="key"] a`)), chromedp.WaitVisible(chromedp.CSS("#holders")))
	if got := text(); !strings.Contains(got, "Nobody") && !strings.Contains(got, "taken") {
		t.Errorf("the key's page says\n%s", got)
	}
	for _, r := range b.requests {
		if strings.Contains(r, "/events") {
			t.Errorf("without script the page asks for %s", r)
		}
	}
}

func TestKeyboardReachesAKeyAndKeepsItOverUpdates(t *testing.T) {
	s := serve(t, nil, lockpage.ShowKeys())
	for i := range 5 {
		s.hold(core.Policy{Name: "deduct", Key: fmt.Sprintf("stock:%d", i)})
	}
	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("all rows", `document.querySelectorAll('[data-s="key"] a').length === 5`)
	on := func() string {
		return eval[string](b, `document.activeElement.textContent.trim()`)
	}
	var walk []string
	for range 12 {
		b.run(chromedp.KeyEvent(kb.Tab))
		walk = append(walk, on())
		if eval[bool](b, `!!document.activeElement.closest('[data-s="key"]')`) && strings.Contains(on(), "stock:3") {
			break
		}
	}
	if !strings.Contains(on(), "stock:3") {
		t.Fatalf("the walk is %q", walk)
	}
	if !eval[bool](b, `matchMedia("(prefers-reduced-motion)") && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
		t.Error("the focus cannot be seen")
	}
	// Another key is waited for, and comes to the front; then the focused one does.
	for _, key := range []string{"stock:1", "stock:3", "stock:4"} {
		s.wait(core.Policy{Name: "deduct", Key: key})
		b.until("the wait for "+key, fmt.Sprintf(`[...document.querySelectorAll('[data-s="key"] tr')].some(r => r.textContent.includes(%q) && r.querySelector("td.wait time"))`, key))
		if got := on(); !strings.Contains(got, "stock:3") {
			t.Errorf("after the update the focus is on %q", got)
		}
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until("the key's page", `location.pathname.endsWith("/key") && document.querySelector("h1").textContent.includes("stock:3")`)
	b.clean(s.url)
}

func TestTablesAreToldByAScreenReader(t *testing.T) {
	s := serve(t, nil, lockpage.ShowKeys())
	s.hold(core.Policy{Name: "deduct", Key: "stock:book"})
	b := open(t)
	b.visit(s.url)
	b.live()
	b.until("the row", has(`[data-s="key"] th`, "stock:book"))
	for what, wrong := range map[string]string{
		"tables without a caption":       `[...document.querySelectorAll("table")].filter(t => !t.caption).length`,
		"headings without scope":         `document.querySelectorAll("th:not([scope])").length`,
		"pictures without a name":        `document.querySelectorAll("svg:not([aria-label]):not([aria-hidden])").length`,
		"regions that cannot be reached": `[...document.querySelectorAll(".scroll")].filter(e => e.tabIndex < 0 || !e.getAttribute("aria-labelledby")).length`,
		"live regions beside the state":  `document.querySelectorAll("[aria-live],[role=status],[role=alert]").length - 1`,
		"IDs that are there twice":       `(a => a.length - new Set(a).size)([...document.querySelectorAll("[id]")].map(e => e.id))`,
	} {
		if n := eval[int](b, wrong); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
}

// A page that nobody sees costs nothing.
func TestHiddenPageIsNotKeptCurrent(t *testing.T) {
	s := serve(t, nil)
	b := open(t)
	b.visit(s.url)
	b.live()
	before := len(b.seen("/events"))
	b.do(`Object.defineProperty(document, "hidden", {value: true, configurable: true}); document.dispatchEvent(new Event("visibilitychange"))`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.hold(core.Policy{Name: "deduct", Key: "stock:book"})
	for n := 0; n < 3; n++ { // it would be there after one of them
		select {
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		case <-time.After(300 * time.Millisecond):
		}
		if eval[bool](b, has(`[data-s="key"] th`, "deduct")) {
			t.Fatal("a hidden page is kept current")
		}
	}
	b.do(`delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))`)
	b.until("the row", has(`[data-s="key"] th`, "deduct"))
	if after := len(b.seen("/events")); after != before+1 {
		t.Errorf("%d streams were opened, want one more than %d", after, before)
	}
}

// seen returns the requests so far whose address has the text.
func (b *tab) seen(part string) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		if strings.Contains(r, part) {
			all = append(all, r)
		}
	}
	return all
}
