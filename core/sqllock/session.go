package sqllock

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session implements driver.Session. Its calls make decisions (decision.go), each in an attempt
// that the caller may abandon (attempt.go). Its loops poll, listen and sweep.
type session struct {
	config
	sink    driver.Sink
	timeout time.Duration // for the answer to a statement
	id      sessionID

	claims       ownClaims
	keyMutexes   keyMutexes
	renewalSlots chan struct{} // few, which leaves connections for other calls
	startOnce    sync.Once     // startLoops

	*kit.Life
	debts *kit.Debts[driver.Owner]
}

func newSession(c config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, id: newSessionID(), renewalSlots: make(chan struct{}, 4), Life: kit.NewLife("sql", "the server")}
	s.claims.init()
	s.debts = kit.NewDebts[driver.Owner](s.Life, 4) // few at a time, which leaves connections for other calls
	return s
}

func newSessionID() (n sessionID) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}

// Ping reports whether the server answers, the tables exist, and their rows can be locked.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	_, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		tx, err := s.db.BeginTx(ctx, readCommitted)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = tx.Rollback() }() // nothing was changed
		rows, err := tx.QueryContext(ctx, s.q.lockRow, []byte(nil))
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
