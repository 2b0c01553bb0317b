package queues_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// workerRole is the role of a child process that runs what is queued in such a database.
func (p *product) workerRole() string { return "worker in " + p.Name }

const payoutTTL = time.Second

var locksOf = map[sqlqueue.Dialect]sqllock.Dialect{sqlqueue.PostgreSQL: sqllock.PostgreSQL, sqlqueue.MySQL: sqllock.MySQL}

// payouts returns the function that the workers run, in the database of db.
func (p *product) payouts(db *sql.DB, e *core.Engine) (*serial.Func[refund], error) {
	tokens, err := fence.NewSQL(p.fences, "")
	store, err2 := sqlqueue.New(db, p.dialect, sqlqueue.WithPoll(50*time.Millisecond))
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	insert := `INSERT INTO payout (order_id, id, attempt) VALUES (?, ?, ?)`
	if p.dialect == sqlqueue.PostgreSQL {
		insert = `INSERT INTO payout (order_id, id, attempt) VALUES ($1, $2, $3)`
	}
	policy := core.Policy{Name: "payout", Key: "payout:{OrderID}", TTL: payoutTTL}
	return serial.NewTx(e, policy, decorator.Database{DB: db, Fence: tokens}, store,
		func(ctx context.Context, tx *sql.Tx, r refund) error {
			info, _ := serial.RunFrom(ctx)
			_, err := tx.ExecContext(ctx, insert, r.OrderID, r.ID, info.Attempt)
			return err
		}, serial.Policy{Attempts: 1 << 20, MaxLength: 1 << 20, KeepCount: 1 << 20, Backoff: serial.Backoff{Least: time.Millisecond, Most: time.Second}})
}

// work is such a process. It says when it has begun.
func (p *product) work(told string) error {
	var source string
	if err := json.Unmarshal([]byte(told), &source); err != nil {
		return err
	}
	db, err := sql.Open(p.Driver, source)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(20)
	pool, err := sql.Open(p.Driver, source) // of the locks, which runs must not wait for
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(20)
	locks, err := sqllock.New(pool, locksOf[p.dialect], sqllock.WithPoll(50*time.Millisecond))
	if err != nil {
		return err
	}
	e, err := core.New(locks, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	f, err := p.payouts(db, e)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return f.Work(context.Background())
}

// TestKilledWorkersOfOneDatabaseLeaveOneEffectOfEachItem has locks, queue and effects in one database. It
// kills -9 worker processes at random times, as often as LOCKAROUND_COUNTS says, two of which work
// at a time, and stops the other one past its leases now and then. An item has one row: its effect. Its
// attempt is that of the run that was committed.
func TestKilledWorkersOfOneDatabaseLeaveOneEffectOfEachItem(t *testing.T) {
	kills := counts.Of(t, "kills", 6, 200)
	onEach(t, func(t *testing.T, d *database) {
		tokens, err := fence.NewSQL(d.fences, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := tokens.Migrate(t.Context(), d.DB); err != nil {
			t.Fatal(err)
		}
		if err := sqllock.Migrate(t.Context(), d.DB, locksOf[d.dialect]); err != nil {
			t.Fatal(err)
		}
		counter := `INT NOT NULL AUTO_INCREMENT PRIMARY KEY`
		if d.dialect == sqlqueue.PostgreSQL {
			counter = `SERIAL PRIMARY KEY`
		}
		d.Must(t, `CREATE TABLE payout (n `+counter+`, order_id VARCHAR(20) NOT NULL, id VARCHAR(20) NOT NULL, attempt INT NOT NULL)`)
		f, err := d.payouts(d.DB, newEngine(t, memlock.New()))
		if err != nil {
			t.Fatal(err)
		}
		const orders = 12
		var places []queue.Place
		var workers [2]*child.Process
		start := func(n int) {
			w, err := child.Start(t, d.workerRole(), d.SourceAt(d.On.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			if line, err := w.Out.ReadString('\n'); line != "ready\n" {
				t.Fatalf("the worker says %q, %v", line, err)
			}
			workers[n] = w
		}
		for n := range workers {
			start(n)
		}
		for kill := range kills {
			for order := range orders { // there is always something to run
				for i := range 5 {
					id := fmt.Sprintf("%06d", kill*5+i)
					place, err := f.Enqueue(t.Context(), refund{ID: id, OrderID: fmt.Sprint(order)}, serial.ItemID(id))
					for ; errors.Is(err, queue.ErrUnavailable); place, err = f.Enqueue(t.Context(), refund{ID: id, OrderID: fmt.Sprint(order)}, serial.ItemID(id)) {
						var why *queue.Error
						_ = errors.As(err, &why)
						t.Logf("%v: %v", err, why.Cause) // the same ID again is the same item
					}
					if err != nil {
						t.Fatal(err)
					}
					places = append(places, place)
				}
			}
			time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
			workers[kill%2].Kill()
			if other := workers[1-kill%2]; kill%3 == 0 { // it is paused past its leases
				if err := other.Stop(); err != nil {
					t.Fatal(err)
				}
				start(kill % 2)
				time.Sleep(payoutTTL * 13 / 10)
				if err := other.Cont(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			start(kill % 2)
		}
		repeated, found := 0, 0
		attempts := make(map[string]int)
		for _, place := range places {
			eventually(t, "the end of all items", func() bool {
				s, err := f.Status(t.Context(), place.ID)
				if err != nil || s.State != queue.Ended {
					return false
				}
				attempts[place.ID] = s.Attempts
				return true
			})
		}
		for _, w := range workers {
			w.Kill()
		}
		rows, err := d.QueryContext(t.Context(), `SELECT order_id, id, attempt FROM payout ORDER BY n`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		last, n := make(map[string]string), 0
		for ; rows.Next(); n++ {
			var order, id string
			var attempt int
			if err := rows.Scan(&order, &id, &attempt); err != nil {
				t.Fatal(err)
			}
			if strings.Compare(id, last[order]) <= 0 {
				t.Errorf("item %s of order %s had its effect after %s", id, order, last[order])
			}
			last[order] = id
			switch all := attempts[queue.ItemName("payout:"+order, id)]; {
			case attempt < all:
				found++
			case attempt > 1:
				repeated++
			}
		}
		if err := rows.Err(); err != nil || n != len(places) {
			t.Errorf("%d effects of %d items, %v", n, len(places), err)
		}
		t.Logf("%d workers were killed while %d items ran: %d had their effect in a later attempt, and of %d a later one found it", kills, len(places), repeated, found)
	})
}
