package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's use of the database.
type session struct {
	config
	sink    driver.Sink
	timeout time.Duration // of one attempt
	name    name

	claims   claims
	turns    turns
	renewals chan struct{} // a few batches at a time, which leaves others a part of the pool
	started  sync.Once     // the watch, and the listener

	*kit.Life
	debts *kit.Debts[driver.Owner]
}

func newSession(c config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, name: randomName(), renewals: make(chan struct{}, 4), Life: kit.NewLife("sql", "the server")}
	s.claims.init()
	s.debts = kit.NewDebts[driver.Owner](s.Life, 4) // a few, which leaves others a part of the pool
	return s
}

// Ping reports whether the server answers, has the tables, and lets their rows be locked.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	_, _, err := ask(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		tx, err := s.db.BeginTx(ctx, readCommitted)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = tx.Rollback() }() // nothing was changed
		rows, err := tx.QueryContext(ctx, s.q.lock, []byte(nil))
		if err == nil {
			err = errors.Join(rows.Err(), rows.Close())
		}
		if err != nil {
			return struct{}{}, err
		}
		var n int64
		return struct{}{}, tx.QueryRowContext(ctx, s.q.ping).Scan(&n)
	})
	return err
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error { return s.Life.Close(ctx, s.debts.Drain, nil) }
