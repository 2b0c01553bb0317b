package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

// noServer is a driver of database/sql without a server.
type noServer struct{ err error }

func (n noServer) Connect(context.Context) (sqldriver.Conn, error) { return nil, n.err }
func (n noServer) Driver() sqldriver.Driver                        { return nil }

type deafListener struct{}

func (deafListener) Listen(context.Context, string, func(), func(string)) error {
	return errors.New("deaf")
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	db := sql.OpenDB(noServer{errors.New("no server")})
	defer func() { _ = db.Close() }()
	for _, tt := range []struct {
		name string
		db   *sql.DB
		d    sqllock.Dialect
		opts []sqllock.Option
		want string
	}{
		{"no pool", nil, sqllock.MySQL, nil, "sql.Open"},
		{"no dialect", db, 0, nil, "sqllock.PostgreSQL"},
		{"an unknown dialect", db, 9, nil, "sqllock.MySQL"},
		{"a poll that is too short", db, sqllock.MySQL, []sqllock.Option{sqllock.WithPoll(time.Millisecond)}, "10ms"},
		{"no poll", db, sqllock.MySQL, []sqllock.Option{sqllock.WithPoll(0)}, "10ms"},
		{"a poll that is too long", db, sqllock.PostgreSQL, []sqllock.Option{sqllock.WithPoll(time.Minute)}, "10s"},
		{"notifications of MySQL", db, sqllock.MySQL, []sqllock.Option{sqllock.WithNotifications(deafListener{})}, "WithPoll"},
	} {
		d, err := sqllock.New(tt.db, tt.d, tt.opts...)
		if err == nil || d != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	d, err := sqllock.New(db, sqllock.PostgreSQL, nil, sqllock.WithNotifications(nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]driver.Config{
		"no sink":    {StoreTimeout: time.Second},
		"no timeout": {Sink: sink{}},
	} {
		if s, err := d.Open(c); err == nil || s != nil {
			t.Errorf("%s: a session was opened", name)
		}
	}
}

type sink struct{}

func (sink) Waiting(driver.ID)         {}
func (sink) Contended(driver.ID, bool) {}
func (sink) Lost(driver.ID, error)     {}

func TestImpossibleRequestsAreRefusedForGood(t *testing.T) {
	db := sql.OpenDB(noServer{errors.New("no server")})
	defer func() { _ = db.Close() }()
	d, err := sqllock.New(db, sqllock.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Open(driver.Config{Sink: sink{}, StoreTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	good := driver.Request{ID: driver.ID{Key: "k"}, TTL: time.Minute}
	for name, change := range map[string]func(*driver.Request){
		"an unknown mode":       func(r *driver.Request) { r.Mode = 7 },
		"a limit of 0":          func(r *driver.Request) { r.Mode = driver.Semaphore },
		"a short TTL":           func(r *driver.Request) { r.TTL = time.Millisecond },
		"no key":                func(r *driver.Request) { r.Key = "" },
		"a long key":            func(r *driver.Request) { r.Key = strings.Repeat("k", sqllock.MaxKeyLength+1) },
		"another key's replace": func(r *driver.Request) { r.Replace = &driver.Ending{ID: driver.ID{Key: ""}} },
	} {
		r := good
		change(&r)
		var refused *driver.PermanentError
		if _, err := s.Acquire(t.Context(), r); !errors.As(err, &refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// number is an error like those of MySQL's client library.
type number struct {
	Number  uint16
	Message string
}

func (e *number) Error() string { return e.Message }

// sqlstate is an error like those of PostgreSQL's client libraries.
type sqlstate string

func (e sqlstate) Error() string    { return "something went wrong" }
func (e sqlstate) SQLState() string { return string(e) }

func TestErrorsOfDriversAreTold(t *testing.T) {
	for _, tt := range []struct {
		err       error
		code      string
		permanent bool
	}{
		{sqlstate("40001"), "40001", false},
		{fmt.Errorf("begin: %w", sqlstate("42P01")), "42P01", true},
		{sqlstate("57P01"), "57P01", false},
		{&number{1213, "Deadlock found"}, "1213", false},
		{fmt.Errorf("exec: %w", &number{1146, "no such table"}), "1146", true},
		{errors.Join(errors.New("x")), "", false},
		{(*number)(nil), "", false},
		{sqldriver.ErrBadConn, "", false},
		{sql.ErrConnDone, "", false},
	} {
		if got := sqllock.Code(tt.err); got != tt.code {
			t.Errorf("the code of %T is %q, want %q", tt.err, got, tt.code)
		}
		if tt.err == error((*number)(nil)) {
			continue // it has no text
		}
		var refused *driver.PermanentError
		if got := errors.As(sqllock.Classify(tt.err), &refused); got != tt.permanent {
			t.Errorf("%v is permanent: %v", tt.err, got)
		}
	}
}

func TestSchemaIsThatOfItsDialect(t *testing.T) {
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL} {
		all := strings.Join(sqllock.Schema(d), "\n")
		for _, table := range []string{"lockaround_lock", "lockaround_claim", "lockaround_row"} {
			if !strings.Contains(all, "CREATE TABLE IF NOT EXISTS "+table+" ") {
				t.Errorf("%v: no table %s", d, table)
			}
		}
		if strings.Contains(all, ";") {
			t.Errorf("%v: a semicolon", d)
		}
	}
	if sqllock.Schema(0) != nil {
		t.Error("a schema for no dialect")
	}
}

func FuzzPayload(f *testing.F) {
	for _, seed := range []string{"", "g", "g0123456789abcdef", "w0123456789abcdef", "l0123456789abcdef", "x0123456789abcdef", "g0123456789abcdef0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		kind, mark, ok := sqllock.ParsePayload(payload)
		if ok && string(kind)+mark != payload {
			t.Errorf("%q became %q and %q", payload, kind, mark)
		}
		if !ok && (kind != 0 || mark != "") {
			t.Errorf("%q is refused, and still %q and %q", payload, kind, mark)
		}
	})
}
