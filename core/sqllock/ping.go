package sqllock

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Ping reports whether the server answers, the tables exist, their rows can be locked and changed,
// no setting of the connection is in the way, and notifications come if there are to be any.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	_, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		return struct{}{}, s.inTx(ctx, func(tx tx) error { return s.ping(ctx, tx) }) // nothing was changed
	})
	if err == nil && s.notifications != nil {
		s.startOnce.Do(s.startLoops)
		err = s.pingNotifications(ctx)
	}
	return err
}

// pingNotifications reports whether the session hears what it sends to itself.
func (s *session) pingNotifications(ctx context.Context) error {
	switch s.awaitHearing(ctx, s.timeout+s.timeout/2) { // somewhat longer than it takes to find out
	case heard:
		return nil
	case deaf:
		return refused("a notification that was sent does not come: the connection of WithNotifications goes through a transaction pooler, or to another database; connect it to the server itself, or leave WithNotifications out")
	}
	switch {
	case s.Open.Err() != nil:
		return driver.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &kit.SilenceError{Store: "sql", After: s.timeout, Last: s.hearing.trouble()}
}

func (s *session) ping(ctx context.Context, tx tx) error {
	if err := s.checkSettings(ctx, tx); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, s.q.lockRow, []byte(nil))
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE lockaround_lock SET token = 0 WHERE lock_key IS NULL`); err != nil { // there is none
		return err
	}
	var n int64
	return tx.QueryRowContext(ctx, s.q.ping).Scan(&n)
}

// checkSettings refuses those settings of a connection that the statements do not overrule.
func (s *session) checkSettings(ctx context.Context, tx tx) error {
	if s.d == PostgreSQL {
		var readOnly, standby bool
		if err := tx.QueryRowContext(ctx, `SELECT current_setting('transaction_read_only')::bool, pg_is_in_recovery()`).Scan(&readOnly, &standby); err != nil {
			return err
		}
		if readOnly && !standby {
			return refused("default_transaction_read_only is on; set it off for the connections of the locks, or for their user")
		}
		return nil
	}
	var safe bool
	if err := tx.QueryRowContext(ctx, `SELECT @@sql_safe_updates LIMIT 1`).Scan(&safe); err != nil {
		return err
	}
	if safe { // the places of a session are no key of their table's
		return refused("sql_safe_updates is on, which refuses some of the locks' statements; set it off for their connections")
	}
	// SET timestamp stops the clock that {now} reads, also within one second.
	var clock [2]int64
	for i := range clock {
		if err := tx.QueryRowContext(ctx, s.d.sql(`SELECT {now} FROM (SELECT SLEEP(0.001)) s{all}`)).Scan(&clock[i]); err != nil {
			return err
		}
	}
	if clock[0] == clock[1] {
		return refused("the connection's clock stands still, as after SET timestamp; leave that out, or set it to DEFAULT")
	}
	return nil
}

func refused(why string) error {
	return &driver.PermanentError{Err: errors.New("sql: " + why)}
}
