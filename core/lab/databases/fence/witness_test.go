package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
)

// witness is a lock store that looks, from the side of the database, at the transaction
// of the holder whose lease is being released.
type witness struct {
	*memlock.Driver

	mu      sync.Mutex
	status  func() string // of the holder's transaction; nil if it has not begun
	seen    []string
	renewal func() // runs once, before the next renewal or check
}

// Open opens a session that tells the witness of releases.
func (w *witness) Open(c driver.Config) (driver.Session, error) {
	s, err := w.Driver.Open(c)
	return witnessed{s, w}, err
}

type witnessed struct {
	driver.Session
	w *witness
}

func (s witnessed) Release(ctx context.Context, rs []driver.Ending) []error {
	s.w.look()
	return s.Session.Release(ctx, rs)
}

func (s witnessed) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.w.mu.Lock()
	f := s.w.renewal
	s.w.renewal = nil
	s.w.mu.Unlock()
	if f != nil {
		f()
	}
	return s.Session.Renew(ctx, rs)
}

// look notes the status of the transaction: "in progress", "committed" or "aborted".
func (w *witness) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status != nil {
		w.seen = append(w.seen, w.status())
	}
}

// saw returns what the witness noted, and forgets it.
func (w *witness) saw() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen, w.status = nil, nil
	return seen
}

// watch tells the witness of the transaction to look at.
func (w *witness) watch(status func() string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status = status
}

// before has f run before the next renewal, which is that of a check.
func (w *witness) before(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renewal = f
}

// work inserts a row and returns how to ask, on another connection, what has become of
// the transaction.
func (d *database) work(ctx context.Context, tx *sql.Tx, id string) (status func() string, err error) {
	if d.dialect == fence.MySQL {
		if _, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (?)`, id); err != nil {
			return nil, err
		}
		return func() string {
			var n int
			err := d.QueryRowContext(context.Background(), `SELECT count(*) FROM work WHERE id = ? LOCK IN SHARE MODE NOWAIT`, id).Scan(&n)
			var m *mysql.MySQLError
			switch {
			case errors.As(err, &m) && m.Number == 1205: // the row is locked
				return "in progress"
			case err != nil:
				return err.Error()
			case n == 0:
				return "aborted"
			}
			return "committed"
		}, nil
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ($1)`, id); err != nil {
		return nil, err
	}
	var xid string
	if err := tx.QueryRowContext(ctx, `SELECT pg_current_xact_id()::text`).Scan(&xid); err != nil {
		return nil, err
	}
	return func() (s string) {
		if err := d.QueryRowContext(context.Background(), `SELECT pg_xact_status($1::text::xid8)`, xid).Scan(&s); err != nil {
			return err.Error()
		}
		return s
	}, nil
}

// newEngine returns an engine on d, closed with the test. Two engines on one driver are
// like two processes on one store.
func newEngine(t testing.TB, d driver.Driver) *core.Engine {
	t.Helper()
	e, err := core.New(d, core.WithNamespace("shop"), core.WithStoreTimeout(20*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// queued is a lock store that says when a session waits in its queue.
type queued struct {
	driver.Driver
	waits chan<- struct{}
}

// Open opens a session whose sink says so.
func (q queued) Open(c driver.Config) (driver.Session, error) {
	c.Sink = queuedSink{c.Sink, q.waits}
	return q.Driver.Open(c)
}

type queuedSink struct {
	driver.Sink
	waits chan<- struct{}
}

func (s queuedSink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	s.waits <- struct{}{}
}
