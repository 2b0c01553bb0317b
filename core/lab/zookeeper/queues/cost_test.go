package queues_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// TestRequestsAreFew counts what passes the proxy, and compares it with the package's
// documentation.
func TestRequestsAreFew(t *testing.T) {
	srv := zktest.Start(t, warm)
	link := zktest.NewProxy(t, srv.Addr())
	q := open(t, newStore(t, dial(t, link.Addr())), "refund", plainRules)
	peer := open(t, newStore(t, dial(t, srv.Addr())), "refund", plainRules)
	var s queue.Step
	var place queue.Place
	steps := []struct {
		what string
		most int
		do   func(n int64) error
	}{
		{"the first append", 3, func(n int64) (err error) {
			place, err = q.Append(t.Context(), key, item(fmt.Sprint(n, "a")))
			return err
		}},
		{"an append", 2, func(n int64) error {
			_, err := q.Append(t.Context(), key, item(fmt.Sprint(n, "b")))
			return err
		}},
		{"status", 3, func(int64) error {
			_, err := q.Status(t.Context(), place.ID)
			return err
		}},
		{"begin", 3, func(n int64) (err error) {
			s, err = q.Begin(t.Context(), holder(n))
			return err
		}},
		{"end and begin", 3, func(n int64) (err error) {
			s, err = q.End(t.Context(), holder(n), queue.Ending{Sequence: s.Item.Sequence, Attempt: 1, Next: true})
			return err
		}},
		{"end", 2, func(n int64) (err error) {
			_, err = q.End(t.Context(), holder(n), queue.Ending{Sequence: s.Item.Sequence, Attempt: 1})
			return err
		}},
		{"a look", 1, func(int64) error {
			_, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: "worker", For: time.Hour})
			return err
		}},
	}
	if _, err := peer.Append(t.Context(), "refund:2", item("1")); err != nil { // makes the nodes of the queue
		t.Fatal(err)
	}
	got := make([]int, len(steps))
	for i := range got {
		got[i] = math.MaxInt
	}
	for n := range int64(5) { // the first ones learn the time
		for i, step := range steps {
			before := link.Count(zktest.Requests)
			if err := step.do(n + 1); err != nil {
				t.Fatalf("%s: %v", step.what, err)
			}
			got[i] = min(got[i], link.Count(zktest.Requests)-before)
		}
	}
	for i, step := range steps {
		if got[i] > step.most {
			t.Errorf("%s took %d requests; want %d", step.what, got[i], step.most)
		}
		t.Logf("%s: %d", step.what, got[i])
	}
}

// TestIdleWorkerHearsAndAsksSeldom counts the requests of a worker that has nothing to do, and then
// gives it something.
func TestIdleWorkerHearsAndAsksSeldom(t *testing.T) {
	if testing.Short() {
		t.Skip("watches an idle worker for seconds")
	}
	srv := zktest.Start(t, warm)
	link := zktest.NewProxy(t, srv.Addr())
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	ran := make(chan time.Time, 100)
	f, err := serialtest.Plan{TTL: time.Minute}.Function(locks, newStore(t, dial(t, link.Addr())), func(context.Context, serialtest.Item) error {
		ran <- time.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := serialtest.Plan{TTL: time.Minute}.Function(locks, newStore(t, dial(t, srv.Addr())), nothing)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Work(ctx) }()
	if _, err := peer.Enqueue(t.Context(), serialtest.Item{ID: "1", OrderID: "A"}); err != nil {
		t.Fatal(err)
	}
	<-ran
	// It is through with what there was when it has asked nothing for a second.
	last, at := 0, time.Now()
	testkit.Until(t, "a quiet second", func() bool {
		if n := link.Count(zktest.Requests); n != last {
			last, at = n, time.Now()
		}
		return time.Since(at) > time.Second
	})
	const watched = 20 * time.Second
	time.Sleep(watched)
	if n, most := link.Count(zktest.Requests)-last, int(watched/(2*time.Second)); n > most {
		t.Errorf("an idle worker has sent %d requests in %v; want %d at most", n, watched, most)
	} else {
		t.Logf("%d requests in %v", n, watched)
	}
	asked := time.Now()
	if _, err := peer.Enqueue(t.Context(), serialtest.Item{ID: "2", OrderID: "A"}); err != nil {
		t.Fatal(err)
	}
	if took := (<-ran).Sub(asked); took > 4*time.Second {
		t.Logf("it began after %v, as it would have without an event", took)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Work ended with %v", err)
	}
}
