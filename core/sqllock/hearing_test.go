package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// well is a server that does what it is asked, and calls notified for each NOTIFY.
type well struct{ notified func(payload string) error }

func (w *well) Connect(context.Context) (sqldriver.Conn, error)                    { return w, nil }
func (*well) Driver() sqldriver.Driver                                             { return nil }
func (*well) Prepare(string) (sqldriver.Stmt, error)                               { return nil, errors.New("it prepares nothing") }
func (*well) Close() error                                                         { return nil }
func (w *well) Begin() (sqldriver.Tx, error)                                       { return w, nil }
func (w *well) BeginTx(context.Context, sqldriver.TxOptions) (sqldriver.Tx, error) { return w, nil }
func (*well) Commit() error                                                        { return nil }
func (*well) Rollback() error                                                      { return nil }
func (w *well) ExecContext(_ context.Context, q string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if strings.Contains(q, "pg_notify") {
		return sqldriver.RowsAffected(1), w.notified(args[1].Value.(string))
	}
	return sqldriver.RowsAffected(0), nil
}

func (*well) QueryContext(_ context.Context, q string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	switch {
	case strings.Contains(q, "transaction_read_only"):
		return &rowsOf{cols: 2, left: [][]sqldriver.Value{{false, false}}}, nil
	case strings.HasPrefix(q, "SELECT COUNT"):
		return &rowsOf{cols: 1, left: [][]sqldriver.Value{{int64(0)}}}, nil
	}
	return &rowsOf{cols: 6}, nil
}

// rowsOf is the rows of an answer.
type rowsOf struct {
	cols int
	left [][]sqldriver.Value
}

func (a *rowsOf) Columns() []string { return make([]string, a.cols) }
func (*rowsOf) Close() error        { return nil }
func (a *rowsOf) Next(to []sqldriver.Value) error {
	if len(a.left) == 0 {
		return io.EOF
	}
	copy(to, a.left[0])
	a.left = a.left[1:]
	return nil
}

type listening func(ctx context.Context, ready func(), notify func(string)) error

func (l listening) Listen(ctx context.Context, _ string, ready func(), notify func(string)) error {
	return l(ctx, ready, notify)
}

// TestWhetherNotificationsComeIsFoundOut has Listen behave in every way, and asks by Ping after a while.
func TestWhetherNotificationsComeIsFoundOut(t *testing.T) {
	const timeout = 3 * time.Second
	type line struct {
		sent  chan string // what was notified
		calls int         // of Listen
		began time.Time
	}
	passOn := func(l *line, ctx context.Context, notify func(string), after time.Duration) error {
		for {
			select {
			case p := <-l.sent:
				time.Sleep(after)
				notify(p)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for name, tt := range map[string]struct {
		listen func(l *line, ctx context.Context, ready func(), notify func(string)) error
		refuse time.Duration // how long NOTIFY fails at first
		want   string        // in what Ping says; empty: it is content
	}{
		"they come": {listen: func(l *line, ctx context.Context, ready func(), notify func(string)) error {
			ready()
			ready()
			return passOn(l, ctx, notify, 0)
		}},
		"they come late": {listen: func(l *line, ctx context.Context, ready func(), notify func(string)) error {
			ready()
			return passOn(l, ctx, notify, timeout*8/10)
		}},
		"the first cannot be sent": {refuse: 2 * timeout, listen: func(l *line, ctx context.Context, ready func(), notify func(string)) error {
			ready()
			return passOn(l, ctx, notify, 0)
		}},
		"they do not come": {want: "transaction pooler", listen: func(_ *line, ctx context.Context, ready func(), _ func(string)) error {
			ready()
			<-ctx.Done()
			return ctx.Err()
		}},
		"the LISTEN is cut before they come": {want: "transaction pooler", listen: func(_ *line, _ context.Context, ready func(), _ func(string)) error {
			ready()
			time.Sleep(timeout / 4)
			return errors.New("cut")
		}},
		"they come by an earlier LISTEN only": {want: "transaction pooler", listen: func() func(*line, context.Context, func(), func(string)) error {
			var first func(string)
			return func(l *line, ctx context.Context, ready func(), notify func(string)) error {
				ready()
				if l.calls == 1 {
					first = notify
					notify(<-l.sent)
					return errors.New("cut")
				}
				return passOn(l, ctx, first, 0)
			}
		}()},
		"nothing listens": {want: "wrong password", listen: func(*line, context.Context, func(), func(string)) error {
			return errors.New("wrong password")
		}},
		"Listen panics": {want: "Listen has panicked", listen: func(*line, context.Context, func(), func(string)) error { panic("Listen") }},
		"Listen panics at first": {listen: func(l *line, ctx context.Context, ready func(), notify func(string)) error {
			if l.calls == 1 {
				panic("Listen")
			}
			ready()
			return passOn(l, ctx, notify, 0)
		}},
		"Listen ends its goroutine at first": {listen: func(l *line, ctx context.Context, ready func(), notify func(string)) error {
			if l.calls == 1 {
				runtime.Goexit()
			}
			ready()
			return passOn(l, ctx, notify, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{sent: make(chan string, 1000), began: time.Now()}
				db := sql.OpenDB(&well{func(payload string) error {
					if time.Since(l.began) < tt.refuse {
						return errors.New("too many connections")
					}
					l.sent <- payload
					return nil
				}})
				defer db.Close() //nolint:errcheck // it has nothing to lose
				s := newSession(config{
					db: db, d: PostgreSQL, q: newQueries(PostgreSQL, true), pollInterval: time.Second,
					notifications: listening(func(ctx context.Context, ready func(), notify func(string)) error {
						l.calls++
						return tt.listen(l, ctx, ready, notify)
					}),
				}, driver.Config{StoreTimeout: timeout})
				defer s.Close(context.Background()) //nolint:errcheck // nothing was asked of it
				_ = s.Ping(t.Context())             // begins
				time.Sleep(10 * timeout)
				err := s.Ping(t.Context())
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("ping: %v, want %q", err, tt.want)
				}
			})
		})
	}
}

func TestCloseDoesNotWaitForAPingThatNothingCanAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := sql.OpenDB(&well{func(string) error { return nil }})
		defer db.Close() //nolint:errcheck // it has nothing to lose
		s := newSession(config{
			db: db, d: PostgreSQL, q: newQueries(PostgreSQL, true), pollInterval: time.Second,
			notifications: listening(func(ctx context.Context, _ func(), _ func(string)) error {
				<-ctx.Done()
				return ctx.Err()
			}),
		}, driver.Config{StoreTimeout: time.Minute})
		pinged := make(chan error, 1)
		go func() { pinged <- s.Ping(context.Background()) }()
		time.Sleep(time.Second)
		began := time.Now()
		err := s.Close(t.Context())
		if took := time.Since(began); err != nil || took > time.Second {
			t.Errorf("close: %v after %v", err, took)
		}
		if err := <-pinged; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("ping of a session that was closed: %v", err)
		}
	})
}
