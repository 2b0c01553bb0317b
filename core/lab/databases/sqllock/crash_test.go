package sqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/sqllock"
)

// crashRole is the role of a child process that holds locks in such a database.
func (p *product) crashRole() string { return suites.Holder + " in " + p.server.Name }

// crashStore describes the store of the crash tests. An address is a data source.
func (p *product) crashStore() suites.Crash {
	return suites.Crash{
		Role: p.crashRole(),
		Open: func(source string) (driver.Driver, func() error, error) {
			db, err := sql.Open(p.server.Driver, source)
			if err != nil {
				return nil, nil, err
			}
			locks, err := sqllock.New(db, p.dialect)
			return locks, db.Close, err
		},
		TTL: time.Second, After: 200 * time.Millisecond, // between two polls
	}
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 processes that hold a lock,
// while another waits.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.crashStore().Run(t, d.SourceAt(d.On.Addr()), 2)
	})
}

func TestKilledHolderOfSeveralKeysFreesAllWithinTTL(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.crashStore().RunSeveral(t, d.SourceAt(d.On.Addr()), 2)
	})
}

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	onEachDatabase(t, func(t *testing.T, d *database) {
		suites.Crowd(t, 300, false, func(t testing.TB) driver.Driver {
			return d.locks(t, d.Connect(t, d.On.Addr(), d.options))
		})
	})
}
