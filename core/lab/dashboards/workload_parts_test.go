package dashboards

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/decorator/leader"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

var errWorkload = errors.New("as the workload wants it")

// locking has waits, hand-offs, calls that find the key taken, and lost leases.
func (l *load) locking() {
	work := func(context.Context) error {
		time.Sleep(2 * time.Millisecond)
		return nil
	}
	for range 3 {
		l.again(0, func() { _ = l.locks.Do(l.ctx, core.Policy{Key: "stock:42", Name: "stock", Wait: core.Forever}, work) })
	}
	l.again(time.Millisecond, func() { _ = l.locks.Do(l.ctx, core.Policy{Key: "stock:42", Name: "stock"}, work) })
	l.again(time.Millisecond, func() {
		_ = l.locks.Do(l.ctx, core.Policy{Key: "stock:42", Name: "stock", Wait: time.Millisecond}, work)
	})
	l.again(20*time.Millisecond, func() {
		_ = l.locks.Do(l.ctx, core.Policy{Key: "lost", Name: "lost"}, func(ctx context.Context) error {
			l.store.Expire("shop/lost")
			<-ctx.Done()
			return nil
		})
	})
}

// failing has a store that fails acquisitions and releases.
func (l *load) failing(e *exported) {
	store := memlock.New()
	locks := e.engine(l.t, store)
	p := core.Policy{Key: "refund", Name: "refund"}
	l.again(20*time.Millisecond, func() {
		store.Fail(errWorkload)
		_ = locks.Do(l.ctx, p, func(context.Context) error { return nil })
		store.Heal()
		_ = locks.Do(l.ctx, p, func(context.Context) error {
			store.Fail(errWorkload)
			return nil
		})
		store.Heal()
	})
}

// quorum has three nodes of which nobody answers.
func (l *load) quorum(e *exported) {
	var nodes []*redis.Client
	for range 3 {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			l.t.Fatal(err)
		}
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: taken.Addr().String()}))
		_ = taken.Close()
	}
	l.t.Cleanup(func() {
		for _, n := range nodes {
			_ = n.Close()
		}
	})
	locks := e.engine(l.t, redlock.New(nodes, redlock.WithMeterProvider(e.meters)))
	l.again(50*time.Millisecond, func() {
		_ = locks.Do(l.ctx, core.Policy{Key: "quorum", Name: "quorum"}, func(context.Context) error { return nil })
	})
}

type mail struct{ To, ID string }

// queue has items that are done, fail and die, and a key that is parked.
func (l *load) queue() {
	f := serial.Must(l.locks, core.Policy{Key: "mail:{To}", Name: "mail"}, queue.NewMemory(), func(_ context.Context, m mail) error {
		if m.To == "nobody" {
			return serial.ErrGiveUp
		}
		return nil
	}, serial.Policy{OnDead: serial.Hold})
	l.work.Go(func() { _ = f.Work(l.ctx) })
	n := 0
	l.again(20*time.Millisecond, func() {
		n++
		_, _ = f.Enqueue(l.ctx, mail{To: "a", ID: strconv.Itoa(n)})
		_, _ = f.Enqueue(l.ctx, mail{To: "nobody", ID: strconv.Itoa(n)})
		if parked, _ := f.Parked(l.ctx, 1); n%5 == 0 && len(parked) == 1 {
			_ = f.Resume(l.ctx, parked[0].ID, queue.Drop)
		}
	})
}

// cache has values that are fresh, loads, and loads that fail.
func (l *load) cache() {
	var loads atomic.Int64
	f := cache.Must(l.locks, core.Policy{Key: "page:{.}", Name: "page", Wait: time.Minute}, cache.NewMemory(cache.Limits{Entries: 10}),
		func(context.Context, string) (int, error) {
			if loads.Add(1)%3 == 0 {
				return 0, errWorkload
			}
			return 1, nil
		}, cache.Policy{Expiry: 100 * time.Millisecond})
	l.again(5*time.Millisecond, func() { _, _ = f.Get(l.ctx, "home") })
	l.t.Cleanup(f.Close)
}

// idempotent has calls that run, are repeated, and are used for something else.
func (l *load) idempotent() {
	type payment struct{ ID, Cents int }
	f := idempotent.Must(l.locks, core.Policy{Key: "pay:{ID}", Name: "pay"}, idempotent.NewMemory(1_000_000),
		func(context.Context, payment) (int, error) { return 1, nil }, idempotent.Policy{Died: idempotent.Rerun})
	n := 0
	l.again(5*time.Millisecond, func() {
		n++
		_, _ = f.Call(l.ctx, payment{n / 3, n % 3 / 2})
	})
}

// job has ticks that run, fail and are another replica's.
func (l *load) job() {
	var runs atomic.Int64
	j := job.Must(l.locks, core.Policy{Key: "job:report", Name: "report"}, func(context.Context) error {
		if runs.Add(1)%2 == 0 {
			return errWorkload
		}
		return nil
	}, job.Schedule{Every: 200 * time.Millisecond})
	l.again(30*time.Millisecond, func() { _ = j.Run(l.ctx) })
}

// leader has one that resigns and leads again.
func (l *load) leader() {
	leading := leader.Must(l.locks, core.Policy{Key: "leader:sweep", Name: "sweep"}, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	l.work.Go(func() { _ = leading.Run(l.ctx) })
	l.again(200*time.Millisecond, func() { _ = leading.Resign(l.ctx) })
}
