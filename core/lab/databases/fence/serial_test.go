package fence_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// payout is what is queued.
type payout struct{ Order, ID string }

// die ends the process as kill -9 does.
func die() {
	self, _ := os.FindProcess(os.Getpid()) // which is there
	_ = self.Kill()
	select {}
}

// mortal is a queue whose process dies before or after it has heard of a run's end.
type mortal struct {
	queue.Store
	queue.Queue
}

func (m mortal) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := m.Store.Open(name, r)
	return mortal{m.Store, q}, err
}

func (m mortal) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	if rand.IntN(20) == 0 {
		die() // committed, and not recorded
	}
	s, err := m.Queue.End(ctx, h, e)
	if rand.IntN(20) == 0 {
		die()
	}
	return s, err
}

// payouts is the serial function of a process.
func payouts(redisAddr, source string, wrap func(queue.Store) queue.Store, run func(context.Context, *sql.Tx, payout) error) (*serial.Func[payout], func(), error) {
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ReadTimeout: 20 * time.Second})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"), core.WithStoreTimeout(20*time.Second))
	if err != nil {
		return nil, nil, err
	}
	db, err := sql.Open("pgx", source)
	if err != nil {
		return nil, nil, err
	}
	tokens, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		return nil, nil, err
	}
	store, err := redisqueue.New(rdb, "shop:queue:")
	if err != nil {
		return nil, nil, err
	}
	f, err := serial.NewTx(locks, core.Policy{Name: "payout", Key: "payout:{Order}", TTL: 300 * time.Millisecond}, decorator.Database{DB: db, Fence: tokens},
		wrap(store), run, serial.Policy{Attempts: 1000, MaxLength: 1 << 20, Backoff: serial.Backoff{Least: time.Millisecond}})
	return f, func() { _, _, _ = locks.Close(), db.Close(), rdb.Close() }, err
}

// pay is the effect of an item.
func pay(ctx context.Context, tx *sql.Tx, p payout) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO paid VALUES ($1, $2)`, p.Order, p.ID)
	return err
}

// workSerially is a worker process that dies now and then.
func workSerially(words []string) error {
	f, _, err := payouts(words[1], words[2], func(s queue.Store) queue.Store { return mortal{Store: s} }, func(ctx context.Context, tx *sql.Tx, p payout) error {
		if rand.IntN(20) == 0 {
			die()
		}
		err := pay(ctx, tx, p)
		if rand.IntN(20) == 0 {
			die() // in the transaction
		}
		return err
	})
	if err != nil {
		return err
	}
	return f.Work(context.Background())
}

func TestKilledWorkersLeaveOneEffectOfEachItem(t *testing.T) {
	kills := counts.Of(t, "kills", 10, 500)
	d := postgres.database(t)
	d.Must(t, `CREATE TABLE paid (lock_order text, id text, n serial)`)
	addr := testservers.Redis(t).Addr()
	f, stop, err := payouts(addr, d.source(), func(s queue.Store) queue.Store { return s }, pay)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	// A worker dies after six items or so.
	const orders = 4
	items := 0
	add := func() {
		for order := range orders {
			if _, err := f.Enqueue(t.Context(), payout{fmt.Sprint(order), fmt.Sprint(items)}, serial.ItemID(fmt.Sprint(items))); err != nil {
				t.Fatal(err)
			}
		}
		items++
	}
	deaths := 0
	for deaths < kills {
		add()
		add()
		worker, err := child.Start(t, role, []string{"serial", addr, d.source()})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = worker.Wait() }() // reports the kill
		for alive := true; alive; {
			select {
			case <-ended:
				alive = false
			case <-time.After(100 * time.Millisecond):
				add()
			}
		}
		deaths++
	}
	// The last one lives.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = f.Work(ctx) }() // until cancel
	deadline := time.Now().Add(5 * time.Minute)
	for d.Number(t, `SELECT count(DISTINCT (lock_order, id)) FROM paid`) < int64(orders*items) {
		if time.Now().After(deadline) {
			t.Fatal("not all has been paid in time")
		}
		time.Sleep(50 * time.Millisecond)
	}
	cancel()
	<-ended
	if n := d.Number(t, `SELECT count(*) FROM paid`); n != int64(orders*items) {
		t.Errorf("%d effects of %d items", n, orders*items)
	}
	if n := d.Number(t, `SELECT count(*) FROM paid a JOIN paid b USING (lock_order) WHERE a.n < b.n AND a.id::int > b.id::int`); n != 0 {
		t.Errorf("%d pairs of items are out of order", n)
	}
	t.Logf("%d deaths, %d items, one effect of each", deaths, orders*items)
}
