package queues_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// run begins and ends all items of a key, and returns their IDs.
func run(t *testing.T, q queue.Queue, key string) (ids []string) {
	t.Helper()
	for token := int64(1); ; token++ {
		h := queue.Holder{Key: key, Token: token, Worker: "worker", For: time.Hour}
		s, err := q.Begin(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		if s.Item == nil {
			return ids
		}
		ids = append(ids, string(s.Item.Payload))
		if _, err := q.End(t.Context(), h, queue.Ending{Sequence: s.Item.Sequence, Attempt: s.Item.Attempt}); err != nil {
			t.Fatal(err)
		}
	}
}

func item(id string) queue.New { return queue.New{ID: id, Payload: []byte(id)} }

// TestOrderIsThatOfCommits has two transactions append to a key, of which the first one to append
// is committed late.
func TestOrderIsThatOfCommits(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		q, peer := d.open(t, d.store(t, d.DB), plainRules), d.open(t, d.store(t, d.Connect(t, d.On.Addr(), "")), plainRules)
		for _, ends := range []struct {
			how  string
			end  func(*sql.Tx) error
			want []string
		}{
			{"commit", (*sql.Tx).Commit, []string{"first", "also first", "second"}},
			{"rollback", (*sql.Tx).Rollback, []string{"second"}},
		} {
			key := "refund:" + ends.how
			tx, err := d.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			first, err := q.AppendTx(t.Context(), tx, key, item("first"))
			if err != nil {
				t.Fatal(err)
			}
			again, err := q.AppendTx(t.Context(), tx, key, item("first"))
			if err != nil || again != first {
				t.Errorf("%s: a repeated append has the place %+v, %v; want %+v", ends.how, again, err, first)
			}
			if _, err := q.AppendTx(t.Context(), tx, key, item("also first")); err != nil {
				t.Fatal(err)
			}
			if s, err := peer.Status(t.Context(), first.ID); !errors.Is(err, queue.ErrUnknown) {
				t.Errorf("%s: before it the item is %+v, %v", ends.how, s, err)
			}
			second := make(chan error, 1)
			go func() {
				_, err := peer.Append(t.Context(), key, item("second"))
				second <- err
			}()
			select {
			case err := <-second:
				t.Errorf("%s: an append did not wait for the transaction before it: %v", ends.how, err)
			case <-time.After(200 * time.Millisecond):
			}
			if err := ends.end(tx); err != nil {
				t.Fatal(err)
			}
			if err := <-second; err != nil {
				t.Fatal(err)
			}
			if got := run(t, peer, key); !slices.Equal(got, ends.want) {
				t.Errorf("%s: %q have run; want %q", ends.how, got, ends.want)
			}
		}
	})
}

// TestTransactionsThatAppendDoNotDeadlock appends to the same keys, many transactions at a time, at
// the databases' default level of isolation. In MySQL those that wait for an insertion that is
// rolled back keep locks of the gap it leaves, so that all but one of them can fail. The others
// follow from that one's end when they are repeated.
func TestTransactionsThatAppendDoNotDeadlock(t *testing.T) {
	for _, c := range []struct {
		name      string
		known     bool // the keys have had an item
		rollBacks bool
	}{
		{"new keys", false, false},
		{"new keys of which some are rolled back", false, true},
		{"known keys", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, d *database) {
				q := d.open(t, d.store(t, d.DB), plainRules)
				key := func(worker, i int) string { return fmt.Sprint("refund:", worker%3, "-", i/5) }
				committed := make(map[string][]string) // by key, in the order of the places
				if c.known {
					for n := range 3 {
						for _, i := range []int{0, 5} {
							if _, err := q.Append(t.Context(), key(n, i), item("known")); err != nil {
								t.Fatal(err)
							}
							committed[key(n, i)] = []string{"known"}
						}
					}
				}
				var mu sync.Mutex
				appendOne := func(key, id string) error {
					tx, err := d.BeginTx(t.Context(), nil)
					if err != nil {
						return err
					}
					if _, err := q.AppendTx(t.Context(), tx, key, item(id)); err != nil {
						return errors.Join(err, tx.Rollback())
					}
					if c.rollBacks && rand.IntN(3) == 0 {
						return tx.Rollback()
					}
					mu.Lock() // the row is locked, so that the order is that of the places
					committed[key] = append(committed[key], id)
					mu.Unlock()
					return tx.Commit()
				}
				repeatable := func(err error) bool {
					var e *mysql.MySQLError
					return c.rollBacks && !c.known && errors.As(err, &e) && e.Number == 1213
				}
				var all sync.WaitGroup
				for n := range 9 {
					all.Go(func() {
						for i := range 10 {
							err := appendOne(key(n, i), fmt.Sprint(n, "-", i))
							for repeatable(err) {
								err = appendOne(key(n, i), fmt.Sprint(n, "-", i))
							}
							if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				for key, want := range committed {
					if got := run(t, q, key); !slices.Equal(got, want) {
						t.Errorf("%q have run of %s; want %q", got, key, want)
					}
				}
			})
		})
	}
}

// TestListenerHearsOfACommittedTransaction hears by a notification of PostgreSQL, and by looking.
func TestListenerHearsOfACommittedTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		o := sqlqueue.WithPoll(20 * time.Millisecond)
		if d.dialect == sqlqueue.PostgreSQL {
			o = sqlqueue.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())})
		}
		q, peer := d.open(t, d.store(t, d.DB, o), plainRules), d.open(t, d.store(t, d.DB, o), plainRules)
		ctx, cancel := context.WithCancel(t.Context())
		up, heard, ended := make(chan bool, 1), make(chan time.Duration, 100), make(chan error, 1)
		go func() {
			ended <- peer.Listen(ctx, func() { up <- true }, func(_ int, in time.Duration) {
				select {
				case heard <- in:
				default:
				}
			})
		}()
		<-up
		tx, err := d.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.AppendTx(t.Context(), tx, "refund:1", item("1")); err != nil {
			t.Fatal(err)
		}
		select {
		case in := <-heard:
			t.Errorf("an item that is not committed is due in %v", in)
		case <-time.After(100 * time.Millisecond):
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
		case <-time.After(patience):
			t.Error("nobody has heard of the item")
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("listen ends with %v", err)
		}
	})
}

// TestCallIsQueuedWithItsTransaction enqueues beside a write of the user's.
func TestCallIsQueuedWithItsTransaction(t *testing.T) {
	onEach(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE returned (id VARCHAR(20) PRIMARY KEY)`)
		ran := make(chan string, 10)
		f := serial.Must(newEngine(t, memlock.New()), refundPolicy, d.store(t, d.DB, sqlqueue.WithPoll(20*time.Millisecond)),
			func(_ context.Context, r refund) error { ran <- r.ID; return nil }, serial.Policy{})
		if _, err := f.EnqueueTx(t.Context(), nil, refund{ID: "1", OrderID: "A"}); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("without a transaction: %v; want core.ErrPolicy", err)
		}
		for id, end := range map[string]func(*sql.Tx) error{"kept": (*sql.Tx).Commit, "dropped": (*sql.Tx).Rollback} {
			tx, err := d.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO returned VALUES ('%s')`, id)); err != nil {
				t.Fatal(err)
			}
			if _, err := f.EnqueueTx(t.Context(), tx, refund{ID: id, OrderID: "A"}, serial.ItemID(id)); err != nil {
				t.Fatal(err)
			}
			if err := end(tx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Enqueue(t.Context(), refund{ID: "last", OrderID: "A"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Work(ctx) }()
		for _, want := range []string{"kept", "last"} {
			if got := <-ran; got != want {
				t.Errorf("%s has run; want %s", got, want)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Work ended with %v", err)
		}
		if n := d.Number(t, `SELECT count(*) FROM returned`); n != 1 {
			t.Errorf("%d orders are returned; want 1", n)
		}
	})
}
