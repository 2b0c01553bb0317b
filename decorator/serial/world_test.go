package serial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// refund is a call that is queued.
type refund struct {
	ID, OrderID string
}

var refundPolicy = core.Policy{Name: "refund", Key: "refund:{OrderID}", TTL: 10 * time.Second}

// refundShop is one store of locks and one of queues, with processes on them.
type refundShop struct {
	t     *testing.T
	locks driver.Driver
	store *queue.Memory

	mu      sync.Mutex
	running map[string]int // by key
	runs    []refundRun
}

// refundRun is what a function has seen.
type refundRun struct {
	refund
	info  serial.RunInfo
	at    time.Time
	token int64
}

func newRefundShop(t *testing.T) *refundShop {
	return &refundShop{t: t, locks: memlock.New(), store: queue.NewMemory(), running: make(map[string]int)}
}

// process returns the serial function of one more process; do is nil or what it does.
func (s *refundShop) process(p serial.Policy, do func(ctx context.Context, r refund, attempt int) error) *serial.Func[refund] {
	return s.processOn(roomtest.Engine(s.t, s.locks), refundPolicy, p, do)
}

func (s *refundShop) processOn(e *core.Engine, lock core.Policy, p serial.Policy, do func(ctx context.Context, r refund, attempt int) error) *serial.Func[refund] {
	s.t.Helper()
	f, err := serial.New(e, lock, s.store, func(ctx context.Context, r refund) error {
		info, _ := serial.RunFrom(ctx)
		lease, _ := core.LeaseFrom(ctx)
		s.mu.Lock()
		s.runs = append(s.runs, refundRun{r, info, time.Now(), lease.Token()})
		if s.running[r.OrderID]++; s.running[r.OrderID] > 1 {
			s.t.Errorf("%d runs of order %s at once", s.running[r.OrderID], r.OrderID)
		}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.running[r.OrderID]--
		}()
		if do == nil {
			return nil
		}
		return do(ctx, r, info.Attempt)
	}, p)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// work runs Work until stop is called, which returns its error.
func work(t *testing.T, f *serial.Func[refund]) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Work(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		if err := stop(); !errors.Is(err, context.Canceled) && !errors.Is(err, core.ErrClosed) {
			t.Errorf("Work ended with %v", err)
		}
	})
	return stop
}

// enqueue adds items named order-1, order-2 and so on.
func (s *refundShop) enqueue(f *serial.Func[refund], order string, n int) (last queue.Place) {
	s.t.Helper()
	for i := range n {
		id := fmt.Sprint(order, "-", i+1)
		place, err := f.Enqueue(s.t.Context(), refund{ID: id, OrderID: order}, serial.ItemID(id))
		if err != nil {
			s.t.Fatal(err)
		}
		last = place
	}
	return last
}

// seen returns the runs of an order, such as "A-1 A-2".
func (s *refundShop) seen(order string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, r := range s.runs {
		if r.OrderID == order {
			ids = append(ids, r.ID)
		}
	}
	return strings.Join(ids, " ")
}

func (s *refundShop) mustHaveRun(order, want string) {
	s.t.Helper()
	if got := s.seen(order); got != want {
		s.t.Errorf("runs of %s: %s; want %s", order, got, want)
	}
}

// starts are when the runs of an order began, from the first one on.
func (s *refundShop) starts(order string) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, r := range s.runs {
		if r.OrderID != order {
			continue
		}
		if first.IsZero() {
			first = r.at
		}
		at = append(at, r.at.Sub(first))
	}
	return at
}

// dies begins the first item of an order, as a worker does that dies then.
func (s *refundShop) dies(order string, rules serial.Policy) {
	s.t.Helper()
	e := roomtest.Engine(s.t, s.locks)
	p := core.Policy{Key: "refund:" + order, TTL: refundPolicy.TTL, NoRenew: true}
	lease, err := e.Acquire(s.t.Context(), p)
	if err != nil {
		s.t.Fatal(err)
	}
	q, err := s.store.Open("refund", queue.Rules{
		Spacing: rules.Spacing, Attempts: max(rules.Attempts, 1), OnDead: rules.OnDead, MaxLength: 1000, KeepFor: time.Hour, KeepCount: 1000,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	step, err := q.Begin(s.t.Context(), queue.Holder{Key: p.Key, Token: lease.Token(), Worker: "dead", For: p.TTL})
	if err != nil || step.Item == nil {
		s.t.Fatalf("begin: %+v, %v", step, err)
	}
}
