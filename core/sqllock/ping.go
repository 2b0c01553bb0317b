package sqllock

import (
	"context"
	"errors"
)

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
