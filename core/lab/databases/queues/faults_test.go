package queues_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// refund is a call that is queued.
type refund struct{ ID, OrderID string }

var refundPolicy = core.Policy{Name: "refund", Key: "refund:{OrderID}", TTL: 2 * time.Second}

func newEngine(t *testing.T, locks *memlock.Driver) *core.Engine {
	t.Helper()
	e, err := core.New(locks, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// killSome kills about half of the database's other connections, and returns how many.
func (d *database) killSome(t testing.TB) (n int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := d.Conn(ctx)
	if err != nil {
		return 0 // a previous call has killed it
	}
	defer func() { _ = conn.Close() }()
	rows, err := conn.QueryContext(ctx, d.others)
	if err != nil {
		return 0
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if rows.Err() != nil {
		return 0
	}
	for _, id := range ids {
		if rand.IntN(2) == 0 {
			if _, err := conn.ExecContext(ctx, fmt.Sprintf(d.kill, id)); err == nil {
				n++
			}
		}
	}
	return n
}

// TestKilledConnectionsLoseNoItemAndNoOrder kills connections for at least 2 s, or for a minute if
// full counts are asked for, or for as long as LOCKAROUND_COUNTS says of killing, while two processes
// append and work.
func TestKilledConnectionsLoseNoItemAndNoOrder(t *testing.T) {
	lasts := counts.Time(t, "killing", 2*time.Second, time.Minute)
	onEach(t, func(t *testing.T, d *database) {
		locks := memlock.New()
		var mu sync.Mutex
		ran := make(map[string][]string) // by order
		var processes []*serial.Func[refund]
		var working sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 2 {
			opts := []sqlqueue.Option{sqlqueue.WithPoll(50 * time.Millisecond)}
			if n == 0 && d.dialect == sqlqueue.PostgreSQL {
				opts = []sqlqueue.Option{sqlqueue.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())})}
			}
			f := serial.Must(newEngine(t, locks), refundPolicy, d.store(t, d.Connect(t, d.On.Addr(), ""), opts...),
				func(_ context.Context, r refund) error {
					mu.Lock()
					defer mu.Unlock()
					if all := ran[r.OrderID]; len(all) == 0 || all[len(all)-1] != r.ID { // otherwise it is repeated
						ran[r.OrderID] = append(all, r.ID)
					}
					return nil
				}, serial.Policy{Attempts: 1000, MaxLength: 1 << 20})
			processes = append(processes, f)
			working.Go(func() { _ = f.Work(ctx) })
		}
		over := make(chan bool)
		wanted := make([][]string, 4)
		var appended atomic.Int64
		var appending sync.WaitGroup
		for n := range wanted {
			appending.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-over:
						return
					default:
					}
					id := fmt.Sprint(i)
					for {
						_, err := processes[i%2].Enqueue(t.Context(), refund{ID: id, OrderID: fmt.Sprint(n)}, serial.ItemID(id))
						if err == nil {
							break
						}
						if !errors.Is(err, queue.ErrUnavailable) {
							t.Errorf("enqueue: %v", err)
							return
						}
					}
					wanted[n] = append(wanted[n], id)
					appended.Add(1)
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				}
			})
		}
		killed, began := 0, time.Now()
		enough := func() bool { return killed > 0 && appended.Load() >= 10 }
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for time.Since(began) < lasts || !enough() && time.Since(began) < patience {
			<-tick.C
			killed += d.killSome(t)
		}
		close(over)
		appending.Wait()
		items := 0
		for n, want := range wanted {
			eventually(t, fmt.Sprintf("the end of the items of order %d", n), func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(ran[fmt.Sprint(n)]) >= len(want)
			})
			mu.Lock()
			if got := ran[fmt.Sprint(n)]; !slices.Equal(got, want) {
				t.Errorf("of order %d %q have run; want %q", n, got, want)
			}
			mu.Unlock()
			items += len(want)
		}
		cancel()
		working.Wait()
		t.Logf("%d connections were killed while %d items ran", killed, items)
		if !enough() {
			t.Error("so nothing was tested")
		}
	})
}

func TestRestartedServerKeepsItemsAndRuns(t *testing.T) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			srv := p.Own(t)
			d := p.database(t, srv)
			q := d.open(t, d.store(t, d.DB), plainRules)
			var places []queue.Place
			for _, id := range []string{"1", "2", "3"} {
				place, err := q.Append(t.Context(), "refund:1", item(id))
				if err != nil {
					t.Fatal(err)
				}
				places = append(places, place)
			}
			h := queue.Holder{Key: "refund:1", Token: 7, Worker: "worker", For: time.Hour}
			begun, err := q.Begin(t.Context(), h)
			if err != nil {
				t.Fatal(err)
			}
			srv.Stop()
			srv.Restart()
			var again queue.Step
			eventually(t, "the same run", func() bool { // connections of the pool have ended
				again, err = q.Begin(t.Context(), h)
				return err == nil
			})
			if again.Item == nil || again.Item.Attempt != 1 || again.Item.Sequence != begun.Item.Sequence {
				t.Errorf("after the restart %+v was begun; want %+v", again.Item, begun.Item)
			}
			if _, err := q.End(t.Context(), h, queue.Ending{Sequence: begun.Item.Sequence, Attempt: 1}); err != nil {
				t.Fatal(err)
			}
			if place, err := q.Append(t.Context(), "refund:1", item("3")); err != nil || place.Sequence != places[2].Sequence || place.Ahead != 1 {
				t.Errorf("a repeated append has the place %+v, %v; want that of %+v", place, err, places[2])
			}
			h.Token = 6
			if _, err := q.Begin(t.Context(), h); !errors.Is(err, queue.ErrSuperseded) {
				t.Errorf("a smaller token: %v", err)
			}
		})
	}
}

// TestStepIsRepeatedUntilOthersAreThrough has the database refuse to wait for a row.
func TestStepIsRepeatedUntilOthersAreThrough(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		options := "&lock_timeout=50"
		if d.dialect == sqlqueue.MySQL {
			options = "?innodb_lock_wait_timeout=1"
		}
		q := d.open(t, d.store(t, d.Connect(t, d.On.Addr(), options)), plainRules)
		if _, err := q.Append(t.Context(), "refund:1", item("1")); err != nil {
			t.Fatal(err)
		}
		tx, err := d.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.open(t, d.store(t, d.DB), plainRules).AppendTx(t.Context(), tx, "refund:1", item("2")); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := q.Append(short, "refund:1", item("late")); err == nil || short.Err() == nil {
			t.Errorf("an append that has to wait for longer than its context: %v", err)
		}
		claims, err := q.Claim(t.Context(), queue.ClaimRequest{Worker: "worker", Max: 1, For: time.Hour})
		if err != nil || len(claims.Keys) > 0 || claims.Next <= 0 || claims.Next > time.Second {
			t.Errorf("a claim beside the transaction: %+v, %v; want to look again in a while", claims, err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := q.Append(t.Context(), "refund:1", item("3"))
			ended <- err
		}()
		time.Sleep(1500 * time.Millisecond) // longer than the databases wait
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("an append after the wait: %v", err)
		}
		if got := run(t, q, "refund:1"); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("%q have run", got)
		}
	})
}

// TestStepOfAStoppedProcessIsEndedByTheServer delays the statements of a process, so that its
// transaction idles for longer than a second.
func TestStepOfAStoppedProcessIsEndedByTheServer(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		link := newProxy(t, d.On.Addr())
		slow := d.open(t, d.store(t, d.Connect(t, link.Addr(), d.textAndIdle(1))), plainRules)
		place, err := slow.Append(t.Context(), "refund:1", item("1"))
		if err != nil {
			t.Fatal(err)
		}
		restore := link.Delay(2500*time.Millisecond, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // it tries again
		defer cancel()
		_, err = slow.Begin(ctx, queue.Holder{Key: "refund:1", Token: 1, Worker: "slow", For: time.Hour})
		restore()
		if err == nil {
			t.Fatal("a transaction that was idle for 2.5 s was committed")
		}
		if s, err := slow.Status(t.Context(), place.ID); err != nil || s.State != queue.Waiting {
			t.Errorf("the item is %+v, %v; want it waiting", s, err)
		}
	})
}

func TestRowsThatWereDeletedByHandShow(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		q := d.open(t, d.store(t, d.DB), plainRules)
		if _, err := q.Append(t.Context(), "refund:1", item("1")); err != nil {
			t.Fatal(err)
		}
		d.Must(t, `DELETE FROM lockaround_queue_item`)
		h := queue.Holder{Key: "refund:1", Token: 1, Worker: "worker", For: time.Hour}
		if s, err := q.Begin(t.Context(), h); !errors.Is(err, queue.ErrDamaged) {
			t.Errorf("begin: %+v, %v; want queue.ErrDamaged", s, err)
		}
		d.Must(t, `DROP TABLE lockaround_queue_key`)
		if _, err := q.Begin(t.Context(), h); err == nil || !strings.Contains(err.Error(), "Migrate") {
			t.Errorf("without a table: %v", err)
		}
	})
}

// TestPayloadOverASlowLinkIsAppended holds the middle of a payload back for longer than an idle
// transaction of the store may last.
func TestPayloadOverASlowLinkIsAppended(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		payload := []byte(strings.Repeat("slowly ", 100_000))
		var stalls sync.Once
		var link *proxy.Proxy[string]
		held := make(chan struct{})
		link = newProxyThatTells(t, d.On.Addr(), func(data []byte) {
			if len(data) < 32<<10 || bytes.Contains(data, []byte("INSERT")) {
				return // not yet the middle
			}
			stalls.Do(func() {
				resume := link.Stall()
				time.AfterFunc(3*time.Second, func() {
					close(held)
					resume()
				})
			})
		})
		q := d.open(t, d.store(t, d.Connect(t, link.Addr(), d.textAndIdle(1+len(payload)>>16))), plainRules)
		if _, err := q.Append(t.Context(), "refund:A-1", queue.New{ID: "r-1", Payload: payload}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-held:
		default:
			t.Fatal("nothing was held back")
		}
	})
}
