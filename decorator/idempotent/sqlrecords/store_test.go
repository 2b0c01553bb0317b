package sqlrecords_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/sqlrecords"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nowhere is a database that cannot be reached.
type nowhere struct{}

func (nowhere) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New("there is no server")
}
func (nowhere) Driver() sqldriver.Driver { return nil }

func TestWhatCannotWorkIsRefusedAtOnce(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	for _, tt := range []struct {
		db   *sql.DB
		d    sqlrecords.Dialect
		name string
		says string
	}{
		{nil, sqlrecords.PostgreSQL, "shop", "sql.Open"},
		{db, 0, "shop", "sqlrecords.MySQL"},
		{db, 3, "shop", "sqlrecords.MySQL"},
		{db, sqlrecords.MySQL, "", "0 bytes"},
		{db, sqlrecords.MySQL, strings.Repeat("n", 257), "257 bytes"},
	} {
		if s, err := sqlrecords.New(tt.db, tt.d, tt.name); err == nil || s != nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, %d, %q: %v; want an error with %q", tt.db, tt.d, tt.name, err, tt.says)
		}
		if tt.says == "sql.Open" || tt.says == "sqlrecords.MySQL" {
			if err := sqlrecords.Migrate(t.Context(), tt.db, tt.d); err == nil {
				t.Errorf("Migrate of %v, %d succeeds", tt.db, tt.d)
			}
		}
	}
	if text := sqlrecords.Schema(9); text != "" {
		t.Errorf("the schema of an unknown dialect is %q", text)
	}
}

func TestDatabaseThatDoesNotAnswerIsAnError(t *testing.T) {
	db := sql.OpenDB(nowhere{})
	defer func() { _ = db.Close() }()
	for _, d := range []sqlrecords.Dialect{sqlrecords.PostgreSQL, sqlrecords.MySQL} {
		s, err := sqlrecords.New(db, d, "shop")
		if err != nil {
			t.Fatal(err)
		}
		c := idempotent.Claim{Run: idempotent.Run{1}, Alone: time.Second, Keep: time.Minute}
		_, begin := s.Begin(t.Context(), "k", c)
		_, finish := s.Finish(t.Context(), "k", c, nil)
		_, inTx := s.FinishTx(t.Context(), nil, "k", c, nil)
		for _, err := range []error{begin, finish, inTx, s.GiveUp(t.Context(), "k", c), s.Forget(t.Context(), "k"), sqlrecords.Migrate(t.Context(), db, d)} {
			if err == nil || !strings.HasPrefix(err.Error(), "sqlrecords: ") {
				t.Errorf("%v", err)
			}
		}
	}
}
