package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Status tells of an item, by one statement.
func (q *sqlQueue) Status(ctx context.Context, id string) (queue.Status, error) {
	digest, of, ok := queue.SplitName(id)
	if !ok {
		return queue.Status{}, queue.ErrUnknown
	}
	var l line
	var now, state, attempts, ended int64
	var s queue.Status
	err := q.db.QueryRowContext(ctx, q.statements.status, q.name, []byte(digest), []byte(of)).
		Scan(&now, &l.head, &l.attempts, flag{&l.running}, flag{&l.parked}, &s.Sequence, &state, &attempts, &ended)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return queue.Status{}, queue.ErrUnknown
	case err != nil:
		return queue.Status{}, failure("status", err)
	}
	first := s.Sequence == l.head
	switch {
	case s.Sequence < l.head && !l.keeps(q.rules, s.Sequence, ended, now):
		return queue.Status{}, queue.ErrUnknown
	case state == waiting:
		s.Ahead = l.ahead(s.Sequence)
		if first {
			attempts = l.attempts
			if l.running {
				s.State = queue.Running
			}
		}
	default:
		s.State, s.Ended, s.Parked = queue.Ended, time.UnixMicro(ended), first && l.parked
		if state == dead {
			s.State = queue.GivenUp
		}
	}
	s.Attempts = int(attempts)
	return s, nil
}

// Parked returns parked keys, by one statement that reads all keys that have items.
func (q *sqlQueue) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	rows, err := q.db.QueryContext(ctx, q.statements.parked, q.name, max(limit, 0))
	if err != nil {
		return nil, failure("parked", err)
	}
	defer func() { _ = rows.Close() }() // Err has its error
	var all []queue.Parked
	for rows.Next() {
		var key, id []byte
		var l line
		var ended int64
		if err := rows.Scan(&key, &l.head, &l.sequence, &id, &ended); err != nil {
			return nil, failure("parked", err)
		}
		all = append(all, queue.Parked{
			ID: queue.ItemName(string(key), string(id)), Key: string(key), Sequence: l.head,
			Since: time.UnixMicro(ended), Left: l.length(),
		})
	}
	if err := rows.Err(); err != nil {
		return nil, failure("parked", err)
	}
	return all, nil
}

// Stats counts what there is, by one statement that reads all keys that have items.
func (q *sqlQueue) Stats(ctx context.Context) (queue.Stats, error) {
	var now, oldest int64
	var s queue.Stats
	if err := q.db.QueryRowContext(ctx, q.statements.stats, q.name).Scan(&now, &s.Length, &oldest, &s.Parked); err != nil {
		return queue.Stats{}, failure("stats", err)
	}
	if s.Length > 0 {
		s.Oldest = duration(max(now-oldest, 1))
	}
	return s, nil
}
