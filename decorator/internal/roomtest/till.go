package roomtest

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
)

// Journal is what happens at the database and at the store, in its order: "begin",
// "admit", "exec", "commit", "rollback", "check" and "release".
type Journal struct {
	mu     sync.Mutex
	events []string
	hooks  map[string]func(context.Context) error
}

// On has f decide what happens at an event, each time that it happens.
func (j *Journal) On(event string, f func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.hooks == nil {
		j.hooks = map[string]func(context.Context) error{}
	}
	j.hooks[event] = f
}

// Note notes an event, and returns what is decided of it.
func (j *Journal) Note(ctx context.Context, event string) error {
	j.mu.Lock()
	j.events = append(j.events, event)
	j.mu.Unlock()
	return j.Pass(ctx, event)
}

// Pass is Note for what is no event of its own: "checked" and "held".
func (j *Journal) Pass(ctx context.Context, event string) error {
	j.mu.Lock()
	f := j.hooks[event]
	j.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

// All returns the events. Those in without are left out.
func (j *Journal) All(without ...string) string {
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

// Count returns how often an event has happened.
func (j *Journal) Count(event string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.events {
		if e == event {
			n++
		}
	}
	return n
}

// OpenDB opens a database that notes what is asked of it.
func (j *Journal) OpenDB() *sql.DB { return sql.OpenDB(recorder{j}) }

// recorder is the connector, the driver and the connections of a database that notes
// what is asked of it. Its transactions keep the context of their beginning and commit
// with it, as pgx does.
type recorder struct{ *Journal }

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
	return recorderTx{r, ctx}, r.Note(ctx, "begin")
}

func (r recorder) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if word, _, ok := strings.Cut(query, "SAVEPOINT"); ok {
		return driver.RowsAffected(0), r.Pass(ctx, strings.ToLower(strings.TrimSpace(word))+" savepoint")
	}
	event := "exec"
	if strings.HasPrefix(query, "INSERT INTO \"lockaround_fence\"") {
		event = "admit"
	}
	err := r.Note(ctx, event)
	if errors.Is(err, fence.ErrStale) {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), err
}

func (tx recorderTx) Commit() error { return errors.Join(tx.Note(tx.ctx, "commit"), tx.ctx.Err()) }

func (tx recorderTx) Rollback() error { return errors.Join(tx.Note(tx.ctx, "rollback"), tx.ctx.Err()) }

// noted is a lock store that notes checks and releases.
type noted struct {
	*memlock.Driver
	*Journal
}

// Open opens a session that does so.
func (s noted) Open(c lockdriver.Config) (lockdriver.Session, error) {
	inner, err := s.Driver.Open(c)
	return notedSession{inner, s.Journal}, err
}

type notedSession struct {
	lockdriver.Session
	*Journal
}

func (s notedSession) Renew(ctx context.Context, rs []lockdriver.Renewal) []lockdriver.Renewed {
	_ = s.Note(ctx, "check")
	defer func() { _ = s.Pass(ctx, "checked") }()
	return s.Session.Renew(ctx, rs)
}

func (s notedSession) Release(ctx context.Context, rs []lockdriver.Ending) []error {
	for range rs { // several keys are released by one call
		_ = s.Note(ctx, "release")
	}
	return s.Session.Release(ctx, rs)
}

// Till is a shop with a database.
type Till struct {
	*Journal
	Store  *memlock.Driver
	Engine *core.Engine
	DB     *sql.DB
	Fence  *fence.SQL
}

// NewTill opens a till.
func NewTill(t testing.TB) *Till {
	t.Helper()
	j := &Journal{}
	db := j.OpenDB()
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
	return &Till{j, store, Engine(t, noted{store, j}), db, f}
}
