package queues_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// historyRole is the role of a child process that writes down what it runs.
func (p *product) historyRole() string { return "history in " + p.Name }

// openHistory opens what a process needs whose locks and queues are in one database.
func (p *product) openHistory(source string) (e *core.Engine, store *sqlqueue.Store, db *sql.DB, err error) {
	if db, err = sql.Open(p.Driver, source); err != nil {
		return nil, nil, nil, err
	}
	db.SetMaxOpenConns(30) // four processes and the test are less than the server takes
	db.SetMaxIdleConns(30)
	locks, err := sqllock.New(db, locksOf[p.dialect], sqllock.WithPoll(50*time.Millisecond))
	if err != nil {
		return nil, nil, nil, err
	}
	if e, err = core.New(locks, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		return nil, nil, nil, err
	}
	store, err = sqlqueue.New(db, p.dialect, sqlqueue.WithPoll(50*time.Millisecond))
	return e, store, db, err
}

// writeHistory is such a process.
func (p *product) writeHistory(told string) error {
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // the test breaks connections on purpose
	var plan serialtest.Plan
	if err := json.Unmarshal([]byte(told), &plan); err != nil {
		return err
	}
	e, store, _, err := p.openHistory(plan.Store)
	if err != nil {
		return err
	}
	return serialtest.Work(context.Background(), plan, e, store)
}

// TestHistoryOverProcessesAndRestarts runs 1,000 items, or as many as LOCKAROUND_COUNTS says, by processes
// that are killed, stopped and cut off from a server that is restarted and killed.
func TestHistoryOverProcessesAndRestarts(t *testing.T) {
	t.Parallel()
	items := counts.Of(t, "items", 1000, 100_000)
	for _, p := range products {
		t.Run(p.Name, func(t *testing.T) {
			srv := p.Own(t)
			d := p.database(t, srv)
			if err := sqllock.Migrate(t.Context(), d.DB, locksOf[d.dialect]); err != nil {
				t.Fatal(err)
			}
			e, store, db, err := p.openHistory(d.SourceAt(srv.Addr()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _, _ = e.Close(), db.Close() })
			serialtest.Run(t, serialtest.History{
				Plan: serialtest.Plan{Store: d.SourceAt(srv.Addr()), TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50},
				Keys: items / 100, Each: 100, Locks: e, Queues: store,
				Start: func(t testing.TB, plan serialtest.Plan) serialtest.Process {
					w, err := child.Start(t, p.historyRole(), plan)
					if err != nil {
						t.Fatal(err)
					}
					return w
				},
				Faults: []serialtest.Fault{
					{Name: "half of the connections cut", Cause: func() { d.killSome(t) }},
					{Name: "servers restarted", Cause: func() { srv.Stop(); srv.Restart() }},
					{Name: "servers killed", Cause: srv.Restart},
				},
			})
		})
	}
}
