package queues_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

func TestTablesAreMadeOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		d.Must(t, `DROP TABLE lockaround_queue_key`, `DROP TABLE lockaround_queue_item`)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := sqlqueue.Migrate(t.Context(), d.DB, d.dialect); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// Also beside a transaction that uses them.
		tx, err := d.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := d.open(t, d.store(t, d.DB), plainRules).AppendTx(t.Context(), tx, "refund:1", item("1")); err != nil {
			t.Fatal(err)
		}
		if err := sqlqueue.Migrate(t.Context(), d.DB, d.dialect); err != nil {
			t.Error(err)
		}
	})
}

// TestIdleKeysAreForgottenAndTheirSequencesRise has a key whose sequence is ahead of the clock.
func TestIdleKeysAreForgottenAndTheirSequencesRise(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		rules := plainRules
		rules.KeepFor = queue.MinKeep
		q := d.open(t, d.store(t, d.DB), rules)
		const keys, ahead = 150, int64(1) << 60
		for i := range keys {
			key := fmt.Sprint("refund:", i)
			if _, err := q.Append(t.Context(), key, item("1")); err != nil {
				t.Fatal(err)
			}
			run(t, q, key)
		}
		d.Must(t, fmt.Sprintf(`UPDATE lockaround_queue_key SET sequence = %d, head = %d WHERE lock_key = 'refund:1'`, ahead, ahead+1))
		if _, err := q.Append(t.Context(), "kept", item("1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(queue.MinKeep)
		for range 2 { // a hundred each
			d.forget(t, q)
		}
		if n := d.Number(t, `SELECT count(*) FROM lockaround_queue_key`); n != 2 { // and the row of the largest sequence
			t.Errorf("%d keys are left; want 1", n-1)
		}
		if n := d.Number(t, `SELECT count(*) FROM lockaround_queue_item`); n != 1 {
			t.Errorf("%d items are left; want 1", n)
		}
		place, err := q.Append(t.Context(), "refund:1", item("1"))
		if err != nil || place.Sequence <= ahead {
			t.Errorf("the place is %+v, %v; want a sequence above %d", place, err, ahead)
		}
		if s, err := q.Stats(t.Context()); err != nil || s.Length != 2 {
			t.Errorf("stats are %+v, %v; want 2 items", s, err)
		}
	})
}

// TestSequencesRiseWhenAllIsLost has a database come back empty.
func TestSequencesRiseWhenAllIsLost(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		q := d.open(t, d.store(t, d.DB), plainRules)
		last := queue.Place{}
		for i := range 5 {
			place, err := q.Append(t.Context(), "refund:1", item(fmt.Sprint(i)))
			if err != nil || place.Sequence <= last.Sequence {
				t.Fatalf("the place is %+v, %v; want a sequence above %d", place, err, last.Sequence)
			}
			last = place
			if i == 3 {
				d.Must(t, `DELETE FROM lockaround_queue_item`, `DELETE FROM lockaround_queue_key`)
			}
		}
		if last.Ahead != 0 {
			t.Errorf("%d items are ahead of the first one after the loss", last.Ahead)
		}
		run1(t, q, "refund:1", 1)
	})
}

// forget makes the queue's next claim of many.
func (d *database) forget(t *testing.T, q queue.Queue) {
	t.Helper()
	if _, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: "worker", Max: 1, For: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
}

func TestEndedItemsAreDeletedInBatches(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		rules := plainRules
		rules.KeepCount = 5
		q := d.open(t, d.store(t, d.DB), rules)
		for i := range 200 {
			if _, err := q.Append(t.Context(), "refund:1", item(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			run1(t, q, "refund:1", int64(i+1))
		}
		if n := d.Number(t, `SELECT count(*) FROM lockaround_queue_item`); n < 5 || n > 5+64 {
			t.Errorf("%d items are left; want 5, and 64 more at most", n)
		}
		if n := d.Number(t, `SELECT COALESCE(SUM(length(payload)), 0) FROM lockaround_queue_item`); n != 0 {
			t.Errorf("%d bytes of payload are left of items that have ended", n)
		}
	})
}

// run1 begins and ends one item.
func run1(t *testing.T, q queue.Queue, key string, token int64) {
	t.Helper()
	h := queue.Holder{Key: key, Token: token, Worker: "worker", For: time.Hour}
	s, err := q.Begin(t.Context(), h)
	if err != nil || s.Item == nil {
		t.Fatalf("begin: %+v, %v", s, err)
	}
	if _, err := q.End(t.Context(), h, queue.Ending{Sequence: s.Item.Sequence, Attempt: s.Item.Attempt}); err != nil {
		t.Fatal(err)
	}
}

// TestIdleWorkerMakesOneStatementInTwoSeconds counts what passes the proxy.
func TestIdleWorkerMakesOneStatementInTwoSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for 12 s")
	}
	onEach(t, func(t *testing.T, d *database) {
		link := newProxy(t, d.On.Addr())
		f := serial.Must(newEngine(t, memlock.New()), refundPolicy, d.store(t, d.Connect(t, link.Addr(), d.text)),
			func(context.Context, refund) error { return nil }, serial.Policy{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Work(ctx) }()
		eventually(t, "the first look", func() bool { return link.Count("selects") > 0 })
		time.Sleep(time.Second)
		const lasts = 11 * time.Second
		before := link.Count("selects")
		time.Sleep(lasts)
		n := link.Count("selects") - before
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Work ended with %v", err)
		}
		if n < 2 || n > int(lasts/(2*time.Second)) {
			t.Errorf("%d statements in %v; want one in 2 s at most, and some", n, lasts)
		}
	})
}
