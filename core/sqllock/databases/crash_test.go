package databases_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/crash"
	"github.com/lockaround/lockaround/core/internal/crowd"
	"github.com/lockaround/lockaround/core/sqllock"
)

// role is what a child is that holds locks in such a database.
func (p *product) role() string { return crash.Role + " in " + p.server.Name }

// crashing is where holders are killed: an address is a data source.
func (p *product) crashing() crash.Store {
	return crash.Store{
		Role: p.role(),
		Open: func(source string) (driver.Driver, func() error, error) {
			db, err := sql.Open(p.server.Driver, source)
			if err != nil {
				return nil, nil, err
			}
			locks, err := sqllock.New(db, p.dialect)
			return locks, db.Close, err
		},
		TTL: time.Second, After: 200 * time.Millisecond, // between two looks
	}
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 processes that hold a lock,
// while another waits.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.crashing().Run(t, d.on.Source(d.on.Addr(), d.name), 2)
	})
}

func TestCrowdIsLetInOneByOne(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		crowd.Run(t, 300, false, func(t testing.TB) driver.Driver {
			return d.locks(t, d.connect(t, d.on.Addr(), d.options))
		})
	})
}
