package browser

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// With 10,000 keys in use the page has a row for those that wait longest, and what changes with one of
// them is that row alone.
func TestTenThousandKeysAreShownByWhatHasChanged(t *testing.T) {
	const keys = 10_000
	s := serve(t, []core.Option{core.WithLogger(slog.New(slog.DiscardHandler))}, lockpage.ShowKeys())
	var all sync.WaitGroup
	leases := make([]*core.Lease, keys)
	for worker := range 8 {
		all.Go(func() {
			for i := worker; i < keys; i += 8 {
				lease, err := s.locks.Acquire(t.Context(), core.Policy{Name: "deduct", Key: fmt.Sprintf("stock:%05d", i), TTL: 24 * time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				leases[i] = lease
			}
		})
	}
	all.Wait()
	defer func() {
		for _, l := range leases {
			if l != nil {
				_ = l.Release(context.Background())
			}
		}
	}()
	b := open(t)
	b.run(command(performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks}))
	b.run(chromedp.Navigate(s.url))
	b.do(`window.took = []; document.body.addEventListener("shown", e => {
		const t = performance.now(); document.body.getBoundingClientRect();
		took.push(e.detail + performance.now() - t);
	})`)
	b.live()
	b.until("the rows", fmt.Sprintf(`document.querySelectorAll('[data-s="key"] tr').length === %d`, watch.MaxKeys))
	b.until("word of the others", has(".notice", "more keys are in use"))
	first := b.busy()
	b.do(`window.touched = new Set(); new MutationObserver(all => all.forEach(m => {
		const row = (m.target.nodeType === 1 ? m.target : m.target.parentElement)?.closest("tr");
		if (row && !(m.target.parentElement?.matches("time") || m.target.matches?.("time"))) touched.add(row.id);
	})).observe(document.querySelector('[data-s="key"]'), {subtree: true, childList: true, characterData: true, attributes: true})`)
	b.do(`for (let i = 1; i < 1000; i++) clearInterval(i)`) // what runs beside updates
	before := b.busy()
	s.wait(core.Policy{Name: "deduct", Key: eval[string](b, `[...document.querySelectorAll('[data-s="key"] a')][100].textContent`)})
	b.until("the wait in the first row", `document.querySelector('[data-s="key"] tr:first-child td.wait time') !== null`)
	if n := eval[int](b, "touched.size"); n > 2 {
		t.Errorf("a wait for one key has changed %d rows", n)
	}
	update := b.busy() - before
	t.Logf("%d keys in use: the browser's thread took %v for the page and its first update, and %v for a wait; by the clock of a machine with other work, each update took %v ms",
		keys, first, update, eval[[]float64](b, "took.map(n => Math.round(n * 10) / 10)"))
	if update > 200*time.Millisecond { // of its own time, whatever else the machine does
		t.Errorf("an update took the browser's thread %v", update)
	}
	b.clean(s.url)
}

// busy is how long the thread of the window has run scripts, layouts and styles, not counting what
// it had to wait for.
func (b *tab) busy() (d time.Duration) {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		m, err := cdp.Call(ctx, t, performance.GetMetrics, cdp.Empty{})
		if err != nil {
			return err
		}
		for _, v := range m.Metrics {
			switch v.Name {
			case "ScriptDuration", "LayoutDuration", "RecalcStyleDuration":
				d += time.Duration(v.Value * float64(time.Second))
			}
		}
		return nil
	}))
	return d.Round(time.Millisecond / 10)
}
