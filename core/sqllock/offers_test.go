package sqllock_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/sqllock"
)

func TestErrorsOfOtherDriversNameThisOneForWhatItOffers(t *testing.T) {
	db := sql.OpenDB(noServer{errors.New("no server")})
	defer func() { _ = db.Close() }()
	for _, d := range []sqllock.Dialect{sqllock.PostgreSQL, sqllock.MySQL} {
		store, err := sqllock.New(db, d)
		if err != nil {
			t.Fatal(err)
		}
		suites.Offers(t, store)
	}
}
