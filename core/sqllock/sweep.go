package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// swept is how many rows one sweep looks at.
const swept = 256

// Purge removes what has been of no use for a while: keys that nobody holds or waits for,
// leases and places that expired and that nobody asked after, and the rows of [InTx] that
// were made more than an hour ago and that nobody holds. It returns how many rows it has removed.
//
// It is safe beside those who take locks: whoever needs a row that was removed makes it
// anew. Sessions do the same for the lease tables about once a minute, while they are
// used; so Purge is for those who use [InTx] with ever new keys, from a job of their own.
// It waits for nobody, and may be repeated and run by several processes at once.
func Purge(ctx context.Context, db *sql.DB, d Dialect) (int, error) {
	if err := usable(db, d); err != nil {
		return 0, fmt.Errorf("sqllock: purge: %w", err)
	}
	s := &session{config: config{db: db, d: d, q: newQueries(d)}}
	total := 0
	for _, sweep := range []func(context.Context) (int, error){
		func(ctx context.Context) (int, error) { return s.sweep(ctx, &attempt{}) },
		s.sweepRows,
	} {
		for {
			n, err := sweep(ctx)
			total += n
			if err != nil {
				return total, fmt.Errorf("sqllock: purge: %w", classify(err))
			}
			if n == 0 {
				break
			}
		}
	}
	return total, nil
}

// sweep removes claims that nobody has asked after since they expired, and the rows of
// keys without any.
func (s *session) sweep(ctx context.Context, a *attempt) (int, error) {
	expired, err := s.keys(ctx, `SELECT DISTINCT lock_key FROM lockaround_claim WHERE expires_us < {now} - 10000000 ORDER BY lock_key LIMIT ?`, swept)
	if err != nil {
		return 0, err
	}
	for _, key := range expired {
		if err := s.decide(ctx, a, string(key), func(*decision) error { return nil }); err != nil {
			return 0, err
		}
	}
	idle, err := s.keys(ctx, `SELECT lock_key FROM lockaround_lock l WHERE keep_us < {now} AND lock_key <> ''
AND NOT EXISTS (SELECT 1 FROM lockaround_claim c WHERE c.lock_key = l.lock_key) ORDER BY keep_us LIMIT ?`, swept)
	if err != nil || len(idle) == 0 {
		return len(expired), err
	}
	marks, args := list(idle)
	// The floor is committed first: whoever makes one of these rows anew begins above the
	// tokens that they had.
	var highest int64
	if err := s.db.QueryRowContext(ctx, s.d.sql(`SELECT COALESCE(MAX(GREATEST(token, floor_token)), 0) FROM lockaround_lock WHERE lock_key IN `+marks), args...).Scan(&highest); err != nil {
		return len(expired), err
	}
	if err := s.raiseFloor(ctx, highest); err != nil {
		return len(expired), err
	}
	// A claim that came meanwhile does without the row: it has its token itself.
	done, err := s.db.ExecContext(ctx, s.d.sql(`DELETE FROM lockaround_lock WHERE lock_key IN `+marks+` AND keep_us < {now} AND token <= ?`), append(args, highest)...)
	if err != nil {
		return len(expired), err
	}
	n, err := done.RowsAffected()
	return len(expired) + int(n), err
}

// raiseFloor has every key that is made from now on begin above a token.
func (s *session) raiseFloor(ctx context.Context, token int64) error {
	statement := `INSERT INTO lockaround_lock (lock_key, floor_token) VALUES (?, ?) ON DUPLICATE KEY UPDATE floor_token = GREATEST(floor_token, VALUES(floor_token))`
	if s.d == PostgreSQL {
		statement = `INSERT INTO lockaround_lock AS f (lock_key, floor_token) VALUES (?, ?) ON CONFLICT (lock_key) DO UPDATE SET floor_token = GREATEST(f.floor_token, excluded.floor_token)`
	}
	_, err := s.db.ExecContext(ctx, s.d.sql(statement), []byte{}, token)
	return err
}

// sweepRows removes rows of InTx.
func (s *session) sweepRows(ctx context.Context) (int, error) {
	tx, err := s.db.BeginTx(ctx, readCommitted)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	rows, err := tx.QueryContext(ctx, s.d.sql(`SELECT lock_key FROM lockaround_row WHERE created_us < {now} - 3600000000 LIMIT ? FOR UPDATE SKIP LOCKED`), swept)
	keys, err := scanKeys(rows, err)
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	marks, args := list(keys)
	if _, err := tx.ExecContext(ctx, s.d.sql(`DELETE FROM lockaround_row WHERE lock_key IN `+marks), args...); err != nil {
		return 0, err
	}
	return len(keys), tx.Commit()
}

func (s *session) keys(ctx context.Context, query string, args ...any) ([][]byte, error) {
	rows, err := s.db.QueryContext(ctx, s.d.sql(query), args...)
	return scanKeys(rows, err)
}

func scanKeys(rows *sql.Rows, err error) (keys [][]byte, _ error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// list returns placeholders for keys, and the keys as arguments.
func list(keys [][]byte) (marks string, args []any) {
	for _, k := range keys {
		args = append(args, k)
	}
	return "(" + strings.TrimSuffix(strings.Repeat("?, ", len(keys)), ", ") + ")", args
}
