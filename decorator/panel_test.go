package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/decorator/leader"
	"github.com/lockaround/lockaround/decorator/queue"
)

// said is the first row of a panel by its columns.
func said(t *testing.T, p core.Paneler) map[string]string {
	t.Helper()
	panel := p.Panel(t.Context())
	if panel.Err != nil || panel.Title == "" || len(panel.Rows) == 0 {
		t.Fatalf("the panel is %+v", panel)
	}
	row := map[string]string{}
	for _, r := range panel.Rows {
		if len(r) != len(panel.Columns) {
			t.Errorf("a row has %d cells for %d columns", len(r), len(panel.Columns))
		}
	}
	for i, c := range panel.Columns {
		row[c] = fmt.Sprint(panel.Rows[0][i])
	}
	return row
}

func expectCells(t *testing.T, got map[string]string, want ...string) {
	t.Helper()
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			t.Errorf("%s is %q, want %q; the row is %v", want[i], got[want[i]], want[i+1], got)
		}
	}
}

func TestPanelsSayWhatAnOperatorNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithIdentity("pod-1"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close() }()

		refunds := decorator.Serial(locks, core.Policy{Name: "refund", Key: "refund:{.}"}, queue.NewMemory(),
			func(context.Context, string) error { return decorator.ErrGiveUp }, decorator.SerialPolicy{OnDead: decorator.Hold})
		for range 3 {
			if _, err := refunds.Enqueue(t.Context(), "secret-order"); err != nil {
				t.Fatal(err)
			}
		}
		expectCells(t, said(t, refunds), "items", "3", "parked keys", "0", "works here", "false")
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- refunds.Work(ctx) }()
		time.Sleep(time.Minute)
		expectCells(t, said(t, refunds), "parked keys", "1", "works here", "true", "items behind it", "2")
		if all := fmt.Sprint(refunds.Panel(t.Context())); strings.Contains(all, "secret") {
			t.Errorf("the key is in the panel: %s", all)
		}
		stop()
		expectCanceled(t, <-over)

		prices := decorator.Cached(locks, core.Policy{Name: "price", Key: "price:{.}"}, cache.NewMemory(cache.Limits{Entries: 10, Bytes: 1 << 20}),
			func(_ context.Context, sku string) (int, error) {
				if sku == "bad" {
					return 0, errors.New("no price")
				}
				return 7, nil
			}, decorator.CachePolicy{Expiry: time.Minute})
		defer prices.Close()
		for _, sku := range []string{"a", "a", "b", "bad"} {
			_, _ = prices.Get(t.Context(), sku) // one fails
		}
		expectCells(t, said(t, prices), "loads under way", "0", "stored", "2", "failed", "1")

		report := job.Must(locks, core.Policy{Name: "report", Key: "report"}, func(context.Context) error { return nil }, job.Schedule{Every: time.Hour})
		expectCells(t, said(t, report), "every", "1h0m0s", "latest outcome here", "none")
		if err := report.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		expectCells(t, said(t, report), "latest outcome here", "ran", "last success here", fmt.Sprint(time.Now()))

		indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer"}, func(ctx context.Context) error { <-ctx.Done(); return nil })
		expectCells(t, said(t, indexer), "leader", "nobody", "leads here", "false")
		ctx, stop = context.WithCancel(t.Context())
		go func() { over <- indexer.Run(ctx) }()
		synctest.Wait()
		expectCells(t, said(t, indexer), "leader", "pod-1", "leads here", "true", "terms here", "1", "term", fmt.Sprint(indexer.Status().Term))
		stop()
		expectCanceled(t, <-over)
	})
}

func TestPanelOfAStoreThatDoesNotAnswerSaysSo(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer"}, func(context.Context) error { return nil })
	if err := locks.Close(); err != nil {
		t.Fatal(err)
	}
	if p := indexer.Panel(t.Context()); !errors.Is(p.Err, core.ErrClosed) || p.Title == "" {
		t.Errorf("the panel is %+v", p)
	}
}

// expectCanceled expects the error of a context that was cancelled.
func expectCanceled(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
