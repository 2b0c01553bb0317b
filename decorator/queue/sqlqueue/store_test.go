package sqlqueue_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is a database that cannot be reached.
type nowhere struct{}

func (nowhere) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New("there is no server")
}
func (nowhere) Driver() sqldriver.Driver { return nil }

type deaf struct{}

func (deaf) Listen(context.Context, string, func(), func(string)) error { return nil }

func TestWhatCannotWorkIsRefusedAtOnce(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	for _, tt := range []struct {
		what string
		db   *sql.DB
		d    sqlqueue.Dialect
		o    []sqlqueue.Option
		want string
	}{
		{"no database", nil, sqlqueue.PostgreSQL, nil, "sql.Open"},
		{"no dialect", db, 0, nil, "sqlqueue.MySQL"},
		{"another dialect", db, 3, nil, "sqlqueue.MySQL"},
		{"notifications of MySQL", db, sqlqueue.MySQL, []sqlqueue.Option{sqlqueue.WithNotifications(deaf{})}, "WithPoll"},
		{"to poll all the time", db, sqlqueue.MySQL, []sqlqueue.Option{sqlqueue.WithPoll(0)}, "10ms"},
		{"to poll hardly ever", db, sqlqueue.MySQL, []sqlqueue.Option{sqlqueue.WithPoll(time.Minute)}, "10s"},
	} {
		s, err := sqlqueue.New(tt.db, tt.d, tt.o...)
		if err == nil || s != nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want an error with %q", tt.what, s, err, tt.want)
		}
	}
	if err := sqlqueue.Migrate(t.Context(), nil, sqlqueue.PostgreSQL); err == nil {
		t.Error("Migrate of no database succeeds")
	}
	if s := sqlqueue.Schema(9); s != nil {
		t.Errorf("the schema of an unknown dialect is %q", s)
	}
}

func TestQueueHasANameThatTheTablesCanKeep(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	s, err := sqlqueue.New(db, sqlqueue.PostgreSQL, nil, sqlqueue.WithNotifications(nil))
	if err != nil {
		t.Fatal(err)
	}
	rules := queue.Rules{Attempts: 1, MaxLength: 1, KeepFor: time.Hour, KeepCount: 1}
	for _, bad := range []string{"", strings.Repeat("n", 257)} {
		if _, err := s.Open(bad, rules); err == nil {
			t.Errorf("the name of %d bytes is accepted", len(bad))
		}
	}
	q, err := s.Open(strings.Repeat("n", 256), rules)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Append(t.Context(), "key", queue.New{ID: "1"}); err == nil || !strings.Contains(err.Error(), "no server") {
		t.Errorf("append without a server: %v", err)
	}
	if _, err := q.Claim(t.Context(), queue.ClaimRequest{Shard: 1}); err == nil {
		t.Error("a claim in shard 1 of 1 is accepted")
	}
	if _, err := q.(queue.TxAppender).AppendTx(t.Context(), nil, "key", queue.New{ID: "1"}); err == nil {
		t.Error("an append in no transaction is accepted")
	}
}
