package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

// outage is a server that cannot be reached.
type outage struct{}

func (outage) Connect(context.Context) (sqldriver.Conn, error) { return nil, errors.New("an outage") }
func (outage) Driver() sqldriver.Driver                        { return nil }

// TestIdleSessionPollsNoMoreAfterAnOutage releases two leases during an outage. The release of one
// is repeated for as long as the lease lasts, and that of the other is given up.
func TestIdleSessionPollsNoMoreAfterAnOutage(t *testing.T) {
	db := sql.OpenDB(outage{})
	defer func() { _ = db.Close() }()
	s := newSession(config{db: db, d: PostgreSQL, q: newQueries(PostgreSQL, true)}, driver.Config{StoreTimeout: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	defer func() { _ = s.Close(ctx) }() // which gives the leases up
	lease := func(name byte, lasts time.Duration) driver.Ending {
		g := driver.Grant{ID: driver.ID{Key: "stock", Owner: driver.Owner{name}}, Token: 1, Deadline: time.Now().Add(lasts)}
		s.claims.addLease(g, 1)
		return driver.Ending{ID: g.ID, Token: g.Token, Deadline: g.Deadline}
	}
	long, short := lease(1, time.Hour), lease(2, 10*time.Millisecond)
	before := time.Now()
	for _, err := range s.Release(t.Context(), []driver.Ending{long, short}) {
		if err == nil {
			t.Error("a release was confirmed during an outage")
		}
	}
	polled := func() int {
		s.claims.beginPoll()
		s.claims.mu.Lock()
		defer s.claims.mu.Unlock()
		return len(s.claims.byOwner)
	}
	testkit.Until(t, "the end of the polls for a lease whose release is given up", func() bool { return polled() < 2 })
	again := time.Now()
	s.Release(t.Context(), []driver.Ending{long})
	if asked := s.claims.byOwner[long.Owner].releaseAskedAt; asked.Before(before) || !asked.Before(again) {
		t.Error("a repeated release does not count from the first one")
	}
	if n := polled(); n != 1 {
		t.Errorf("polls are for %d leases, want the one whose release is repeated", n)
	}
}
