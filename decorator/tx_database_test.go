package decorator_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core"
	lockdriver "github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// journal is what happens at the database and at the store, in its order: "begin",
// "admit", "exec", "commit", "rollback", "check" and "release".
type journal struct {
	mu     sync.Mutex
	events []string
	hooks  map[string]func(context.Context) error
}

// on has f decide what happens at an event, each time that it happens.
func (j *journal) on(event string, f func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hooks == nil {
		j.hooks = map[string]func(context.Context) error{}
	}
	j.hooks[event] = f
}

func (j *journal) note(ctx context.Context, event string) error {
	j.mu.Lock()
	j.events = append(j.events, event)
	j.mu.Unlock()
	return j.pass(ctx, event)
}

// pass is note for what is no event of its own: "checked" and "held".
func (j *journal) pass(ctx context.Context, event string) error {
	j.mu.Lock()
	f := j.hooks[event]
	j.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

// all returns the events. Those in without are left out.
func (j *journal) all(without ...string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []string
	for _, e := range j.events {
		if !slices.Contains(without, e) {
			all = append(all, e)
		}
	}
	return strings.Join(all, " ")
}

func (j *journal) count(event string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e == event {
			n++
		}
	}
	return n
}

// recorder is the connector, the driver and the connections of a database that notes
// what is asked of it. Its transactions keep the context of their beginning and commit
// with it, as pgx does.
type recorder struct{ *journal }

type recorderTx struct {
	recorder
	ctx context.Context
}

var errNotHere = errors.New("the recorder has none")

func (r recorder) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r recorder) Driver() driver.Driver                        { return r }
func (r recorder) Open(string) (driver.Conn, error)             { return r, nil }
func (r recorder) Close() error                                 { return nil }
func (r recorder) Begin() (driver.Tx, error)                    { return nil, errNotHere }
func (r recorder) Prepare(string) (driver.Stmt, error)          { return nil, errNotHere }
func (r recorder) ResetSession(context.Context) error           { return nil }
func (r recorder) IsValid() bool                                { return true }

func (r recorder) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return recorderTx{r, ctx}, r.note(ctx, "begin")
}

func (r recorder) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if word, _, ok := strings.Cut(query, "SAVEPOINT"); ok {
		return driver.RowsAffected(0), r.pass(ctx, strings.ToLower(strings.TrimSpace(word))+" savepoint")
	}
	event := "exec"
	if strings.HasPrefix(query, "INSERT INTO \"lockaround_fence\"") {
		event = "admit"
	}
	err := r.note(ctx, event)
	if errors.Is(err, fence.ErrStale) {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), err
}

func (tx recorderTx) Commit() error { return errors.Join(tx.note(tx.ctx, "commit"), tx.ctx.Err()) }

func (tx recorderTx) Rollback() error { return errors.Join(tx.note(tx.ctx, "rollback"), tx.ctx.Err()) }

// noted is a lock store that notes checks and releases.
type noted struct {
	*memlock.Driver
	*journal
}

// Open opens a session that does so.
func (s noted) Open(c lockdriver.Config) (lockdriver.Session, error) {
	inner, err := s.Driver.Open(c)
	return notedSession{inner, s.journal}, err
}

type notedSession struct {
	lockdriver.Session
	*journal
}

func (s notedSession) Renew(ctx context.Context, rs []lockdriver.Renewal) []lockdriver.Renewed {
	_ = s.note(ctx, "check")
	defer func() { _ = s.pass(ctx, "checked") }()
	return s.Session.Renew(ctx, rs)
}

func (s notedSession) Release(ctx context.Context, rs []lockdriver.Ending) []error {
	for range rs { // several keys are released by one call
		_ = s.note(ctx, "release")
	}
	return s.Session.Release(ctx, rs)
}

// till is a shop with a database.
type till struct {
	*journal
	store  *memlock.Driver
	engine *core.Engine
	db     decorator.Database
}

func newTill(t testing.TB) *till {
	t.Helper()
	j := &journal{}
	db := sql.OpenDB(recorder{j})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	store := memlock.New()
	return &till{j, store, roomtest.Engine(t, noted{store, j}), decorator.Database{DB: db, Fence: f}}
}

// lose loses the lease of the SKU A.
func (s *till) lose(context.Context) error {
	s.store.Expire("shop/stock:A")
	return nil
}

type txFunc = func(context.Context, *sql.Tx, deduction) (receipt, error)

// sell is a function that writes.
func sell(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
	_, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - $1`, d.Count)
	return receipt{d.Count}, err
}

// run makes one call in a goroutine of its own, which may exit.
func (s *till) run(ctx context.Context, fn txFunc) (out receipt, recovered any, err error) {
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		out, err = decorator.WithLockTx(s.engine, stock, s.db, fn)(ctx, deduction{"A", 2})
		returned = true
	}()
	<-done
	if !returned && recovered == nil {
		recovered = "goexit"
	}
	return out, recovered, err
}
