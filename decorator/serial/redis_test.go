//go:build unix

package serial_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/decorator/serial/internal/serialcheck"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// openSerial opens what the serial function of a process needs.
func openSerial(rdb *redis.Client) (*core.Engine, *redisqueue.Store, error) {
	e, err := core.New(redislock.New(rdb), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, err
	}
	store, err := redisqueue.New(rdb, "shop:queue:")
	return e, store, err
}

// TestSerialProcess is a worker process that writes down what it runs.
func TestSerialProcess(t *testing.T) {
	roomtest.Be(t, func(p serialtest.Plan) error {
		e, store, err := openSerial(roomtest.Client(p.Store))
		if err != nil {
			return err
		}
		return serialtest.Work(context.Background(), p, e, store)
	})
}

// serialProcess is such a process.
type serialProcess struct{ *roomtest.Child }

func startSerial(t *testing.T, p serialtest.Plan) serialProcess {
	t.Helper()
	c := roomtest.Start(t, "TestSerialProcess", p)
	c.Begin(t)
	return serialProcess{c}
}

func (p serialProcess) Kill() {
	p.Child.Kill()
	_ = p.Wait() // reports the kill
}
func (p serialProcess) Stop() error { return p.Process().Signal(syscall.SIGSTOP) }
func (p serialProcess) Cont() error { return p.Process().Signal(syscall.SIGCONT) }

// TestHistoryOverProcesses runs items by processes that are killed, stopped and cut off.
func TestHistoryOverProcesses(t *testing.T) {
	t.Parallel()
	items := counts.Of(t, "items", 2000, 30_000)
	plan := serialtest.Plan{TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50}
	spaced := plan
	spaced.Spacing = 20 * time.Millisecond
	for name, h := range map[string]serialtest.History{
		"many keys": {Plan: plan, Keys: max(items/100, 4), Each: 100},
		"spaced":    {Plan: spaced, Keys: max(items/25, 4), Each: 25},
	} {
		t.Run(name, func(t *testing.T) {
			h.Plan.Store = testservers.Redis(t).Addr()
			rdb := roomtest.Client(h.Plan.Store)
			t.Cleanup(func() { _ = rdb.Close() })
			e, store, err := openSerial(rdb)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			h.Locks, h.Queues = e, store
			h.Start = func(_ testing.TB, p serialtest.Plan) serialtest.Process { return startSerial(t, p) }
			h.Faults = []serialtest.Fault{{Name: "all connections cut", Cause: func() {
				_ = rdb.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err() // as many as there are
			}}}
			serialtest.Run(t, h)
		})
	}
}

// counted is a store that counts what is asked of its queues.
type counted struct {
	queue.Store
	appends, claims, runs atomic.Int64
}

type countedQueue struct {
	queue.Queue
	*counted
}

func (c *counted) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := c.Store.Open(name, r)
	return countedQueue{q, c}, err
}

func (q countedQueue) Append(ctx context.Context, key string, n queue.New) (queue.Place, error) {
	q.appends.Add(1)
	return q.Queue.Append(ctx, key, n)
}

func (q countedQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	q.claims.Add(1)
	return q.Queue.Claim(ctx, r)
}

func (q countedQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	q.runs.Add(1)
	return q.Queue.Begin(ctx, h)
}

func (q countedQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	q.runs.Add(1)
	return q.Queue.End(ctx, h, e)
}

// trips is what was asked since the last call.
func (c *counted) trips() (appends, rest int64) {
	return c.appends.Swap(0), c.claims.Swap(0) + c.runs.Swap(0)
}

func TestIdleWorkerAsksTheStoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{Store: queue.NewMemory()}
		s := newRefundShop(t)
		f := serial.Must(roomtest.Engine(t, s.locks), refundPolicy, c, func(context.Context, refund) error { return nil }, serial.Policy{})
		work(t, f)
		time.Sleep(time.Minute)
		c.trips()
		time.Sleep(10 * time.Minute)
		// Redis is pinged as often beside that: one command in 2 s is 300.
		if _, n := c.trips(); n > 150 {
			t.Errorf("asked %d times in 10 min; want 150 or less", n)
		}
	})
}

// redisSerial is a serial function on a server, whose runs tell when they began.
func redisSerial(t *testing.T, p serial.Policy) (*serial.Func[refund], *counted, chan time.Time) {
	t.Helper()
	srv := testservers.Redis(t)
	rdb := roomtest.Client(srv.Addr())
	t.Cleanup(func() { _ = rdb.Close() })
	store, err := redisqueue.New(rdb, "shop:queue:")
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Store: store}
	begun := make(chan time.Time, 1<<16)
	f, err := serial.New(roomtest.Engine(t, redislock.New(rdb)), refundPolicy, c, func(context.Context, refund) error {
		begun <- time.Now()
		return nil
	}, p)
	if err != nil {
		t.Fatal(err)
	}
	return f, c, begun
}

func TestItemStartsSoonAndCostsFewRoundTrips(t *testing.T) {
	const lonely, burst = 200, 4000
	f, c, begun := redisSerial(t, serial.Policy{MaxLength: burst})
	work(t, f)
	if _, err := f.Enqueue(t.Context(), refund{OrderID: "warm"}); err != nil {
		t.Fatal(err)
	}
	<-begun
	ended := func(place queue.Place) {
		t.Helper()
		for deadline := time.Now().Add(roomtest.Patience); ; {
			if s, err := f.Status(t.Context(), place.ID); err != nil || s.State == queue.Ended {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the item has not ended")
			}
		}
	}
	c.trips()
	var waits []time.Duration
	for i := range lonely {
		asked := time.Now()
		place, err := f.Enqueue(t.Context(), refund{OrderID: fmt.Sprint("A", i)})
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, (<-begun).Sub(asked))
		ended(place)
	}
	appends, rest := c.trips()
	slices.Sort(waits)
	t.Logf("idle to start: %v in the median, %v in 99 of 100; a lonely item costs %.2f appends, and %.2f round trips with its lock",
		waits[lonely/2], waits[lonely*99/100], float64(appends)/lonely, float64(rest)/lonely+1)
	if float64(appends)/lonely > 1 || float64(rest)/lonely+1 > 4.1 { // a look now and then comes on top
		t.Errorf("a lonely item costs %.2f appends and %.2f round trips; want 1 and 4", float64(appends)/lonely, float64(rest)/lonely+1)
	}
	if counts.Full(t) && waits[lonely*99/100] > 10*time.Millisecond {
		t.Errorf("99 of 100 items start within %v; want 10ms", waits[lonely*99/100])
	}

	held, err := f.Enqueue(t.Context(), refund{OrderID: "B"})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	ended(held)
	c.trips()
	began := time.Now()
	var last queue.Place
	for range burst {
		if last, err = f.Enqueue(t.Context(), refund{OrderID: "B"}); err != nil {
			t.Fatal(err)
		}
	}
	ended(last)
	_, rest = c.trips()
	t.Logf("%.0f items of one key in a second, appended by one caller meanwhile; %.2f round trips each", burst/time.Since(began).Seconds(), float64(rest)/burst)
}

func TestBurstCostsOneRoundTripForEachItem(t *testing.T) {
	const burst = 4000
	f, c, begun := redisSerial(t, serial.Policy{MaxLength: burst})
	for range burst {
		if _, err := f.Enqueue(t.Context(), refund{OrderID: "B"}); err != nil {
			t.Fatal(err)
		}
	}
	c.trips()
	began := time.Now()
	work(t, f)
	for range burst {
		<-begun
	}
	_, rest := c.trips()
	perSecond := burst / time.Since(began).Seconds()
	t.Logf("%.0f items of one key in a second; %.3f round trips each", perSecond, float64(rest)/burst)
	if each := float64(rest) / burst; each > 1.2 {
		t.Errorf("%.2f round trips for each item of a burst; want 1.2 or less", each)
	}
	if counts.Full(t) && perSecond < 3000 {
		t.Errorf("%.0f items of one key in a second; want 3000", perSecond)
	}
}

// TestKilledWorkerIsReplacedWithinItsTTL kills a process in a run, and another one has to begin
// the item within the TTL and a second.
func TestKilledWorkerIsReplacedWithinItsTTL(t *testing.T) {
	t.Parallel()
	kills := counts.Of(t, "kills", 3, 100)
	srv := testservers.Redis(t)
	p := serialtest.Plan{Store: srv.Addr(), TTL: 2 * time.Second}
	rdb := roomtest.Client(srv.Addr())
	defer func() { _ = rdb.Close() }()
	e, store, err := openSerial(rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f, err := p.Function(e, store, func(context.Context, serialtest.Item) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	start := func(name string, stuck bool) (serialProcess, func(order string) (time.Time, bool)) {
		plan := p
		plan.Name, plan.File, plan.Stuck = name, filepath.Join(dir, name), stuck
		return startSerial(t, plan), func(order string) (time.Time, bool) {
			file, err := os.Open(plan.File)
			if err != nil {
				return time.Time{}, false
			}
			defer func() { _ = file.Close() }()
			all, _ := serialcheck.Read(file)
			i := slices.IndexFunc(all, func(e serialcheck.Event) bool { return e.Key == order && e.Kind == serialcheck.Started })
			if i < 0 {
				return time.Time{}, false
			}
			return time.Unix(0, all[i].At), true
		}
	}
	await := func(started func(string) (time.Time, bool), order string) time.Time {
		t.Helper()
		for deadline := time.Now().Add(roomtest.Patience); ; time.Sleep(time.Millisecond) {
			if at, ok := started(order); ok {
				return at
			}
			if time.Now().After(deadline) {
				t.Fatalf("waited in vain for order %s", order)
			}
		}
	}
	_, survivorStarted := start("survivor", false)
	var longest time.Duration
	for n := 0; n < kills; {
		victim, started := start(fmt.Sprint("victim", n), true)
		order := ""
		for i := 0; order == ""; i++ { // until the victim gets one
			try := fmt.Sprint("A", n, "-", i)
			if _, err := f.Enqueue(t.Context(), serialtest.Item{ID: "1", OrderID: try}, serial.ItemID("1")); err != nil {
				t.Fatal(err)
			}
			for order == "" {
				if _, ok := started(try); ok {
					order = try
				} else if _, ok := survivorStarted(try); ok {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		victim.Kill()
		killed := time.Now()
		_ = victim.Wait() // reports the kill
		took := await(survivorStarted, order).Sub(killed)
		longest = max(longest, took)
		if took > p.TTL+time.Second {
			t.Errorf("the item of a killed worker started again after %v; want %v", took, p.TTL+time.Second)
		}
		n++
	}
	t.Logf("%d kills: the next attempt began after %v at the latest; the TTL is %v", kills, longest, p.TTL)
}
