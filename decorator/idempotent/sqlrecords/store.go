package sqlrecords

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/decorator/idempotent"
)

// Store is an [idempotent.TxStore] in a database. It is safe for concurrent use.
type Store struct {
	db      *sql.DB
	dialect Dialect
	name    string
	sweepAt atomic.Int64 // when rows that have ended are deleted next, by this process's clock in Unix nanoseconds
	sql     statements
}

var _ idempotent.TxStore = (*Store)(nil)

// statements are what a store sends.
type statements struct{ look, insert, read, replace, finish, giveUp, forget, sweep string }

// The stages of a row.
const (
	begun   = 1
	done    = 2
	givenUp = 3
)

const columns = `run, stage, token, fingerprint, alone_us, ends_us, answer`

// New returns a store of the records of that name, of 1 to 256 bytes, in a database whose table [Migrate] has
// created. Stores of the same database and name share them. New does no I/O, and db stays the
// caller's. Each operation takes one connection of it, and a call by [idempotent.Tx] one as long as
// it runs.
func New(db *sql.DB, d Dialect, name string) (*Store, error) {
	if err := usable(db, d); err != nil {
		return nil, err
	}
	if name == "" || len(name) > 256 {
		return nil, fmt.Errorf(`sqlrecords: the name has %d bytes; 1 to 256 are possible, such as "shop"`, len(name))
	}
	s := statements{
		insert:  `INSERT INTO lockaround_record (digest, ` + columns + `) VALUES (?, ?, ?, ?, ?, {now} + ?, {now} + ?, ?)`,
		read:    `SELECT {now}, 0, 1, ` + columns + ` FROM lockaround_record WHERE digest = ? FOR UPDATE`,
		replace: `UPDATE lockaround_record SET run = ?, stage = ?, token = ?, fingerprint = ?, alone_us = {now} + ?, ends_us = {now} + ?, answer = ? WHERE digest = ? AND run = ? AND stage = ? AND token = ? AND ends_us = ?`,
		finish:  `UPDATE lockaround_record SET stage = 2, token = GREATEST(token, ?), alone_us = 0, ends_us = {now} + ?, answer = ? WHERE digest = ? AND run = ? AND stage = 1`,
		giveUp:  `UPDATE lockaround_record SET stage = 3, ends_us = {now} + ? WHERE digest = ? AND run = ? AND stage = 1`,
		forget:  `DELETE FROM lockaround_record WHERE digest = ?`,
		sweep:   `DELETE FROM lockaround_record WHERE ends_us <= {now} ORDER BY ends_us LIMIT 100`,
		look:    `SELECT {now}, 0, @@autocommit, ` + columns + ` FROM (SELECT 1) alone LEFT JOIN lockaround_record ON digest = ?`,
	}
	if d == PostgreSQL {
		s.insert += ` ON CONFLICT (digest) DO NOTHING`
		s.look = `WITH began AS (` + s.insert + ` RETURNING 1) SELECT {now}, (SELECT count(*) FROM began), 1, ` + columns + ` FROM (SELECT 1) alone LEFT JOIN lockaround_record ON digest = ?`
		s.sweep = `DELETE FROM lockaround_record WHERE ends_us <= {now} AND digest IN (SELECT digest FROM lockaround_record WHERE ends_us <= {now} ORDER BY ends_us LIMIT 100 FOR UPDATE SKIP LOCKED)`
	} else {
		s.insert = `INSERT IGNORE` + s.insert[len(`INSERT`):] // counts 0 rows if there is one, whatever clientFoundRows is
	}
	for _, text := range []*string{&s.look, &s.insert, &s.read, &s.replace, &s.finish, &s.giveUp, &s.forget, &s.sweep} {
		*text = d.sql(*text)
	}
	return &Store{db: db, dialect: d, name: name, sql: s}, nil
}

// DB returns the database.
func (s *Store) DB() *sql.DB { return s.db }

// runner is a *sql.DB or a *sql.Tx.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// row is what is there of a key.
type row struct {
	there      bool
	now        int64
	run, print []byte
	stage      int
	token      int64
	alone, end int64
	answer     []byte
}

func (r *row) ended() bool { return r.there && r.end <= r.now }

func (r *row) by(run idempotent.Run) bool { return r.there && string(r.run) == string(run[:]) }

// values are the columns of a row after its digest, as insert and replace take them.
func values(c *idempotent.Claim, stage int, answer []byte) []any {
	alone := c.Alone
	if c.Token > 0 || stage != begun {
		alone = 0
	}
	if answer == nil {
		answer = []byte{}
	}
	return []any{c.Run[:], stage, c.Token, c.Fingerprint[:], micros(alone), micros(c.Keep), answer}
}

// micros is a duration in whole microseconds, not less than it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func (s *Store) digest(key string) []byte {
	text := append(binary.BigEndian.AppendUint16(nil, uint16(len(s.name))), s.name...)
	sum := sha256.Sum256(append(text, key...))
	return sum[:]
}

// tries is how often a change is tried that others are always faster with.
const tries = 100

// Begin begins the call of a key. The error is [idempotent.ErrSuperseded], one of
// [idempotent.Claim.Validate], or around what has kept the database from answering.
func (s *Store) Begin(ctx context.Context, key string, c idempotent.Claim) (idempotent.Record, error) {
	if err := c.Validate(); err != nil {
		return idempotent.Record{}, err
	}
	var before idempotent.Record
	var superseded bool
	digest := s.digest(key)
	err := s.try(ctx, s.db, func() (again bool, err error) {
		r, began, err := s.look(ctx, digest, &c)
		switch {
		case err != nil || began:
			return false, err
		case !r.there:
			if s.dialect == PostgreSQL {
				return true, nil // somebody else has begun between the two halves of the statement
			}
			began, err = s.changes(ctx, s.db, s.sql.insert, append([]any{digest}, values(&c, begun, nil)...)...)
			return !began, err
		case r.ended(), r.stage == givenUp && !r.by(c.Run):
			began, err = s.replaces(ctx, s.db, digest, &r, values(&c, begun, nil))
			return !began, err
		case r.stage == givenUp, c.Token > 0 && r.stage == begun && r.token > c.Token:
			superseded = true
			return false, nil
		}
		before = r.record()
		if r.stage == begun && c.Token > 0 && before.Fingerprint == c.Fingerprint && (r.by(c.Run) || before.Alone == 0) {
			taken, err := s.replaces(ctx, s.db, digest, &r, values(&c, begun, nil))
			if !taken {
				before = idempotent.Record{}
			}
			return !taken, err
		}
		return false, nil
	})
	switch {
	case err != nil:
		return idempotent.Record{}, failure("begin", err)
	case superseded:
		return idempotent.Record{}, idempotent.ErrSuperseded
	}
	if before.State == idempotent.None {
		s.sweep(ctx)
	}
	return before, nil
}

func (r *row) record() idempotent.Record {
	out := idempotent.Record{State: idempotent.Begun, Token: r.token, Alone: time.Duration(max(r.alone-r.now, 0)) * time.Microsecond}
	if copy(out.Run[:], r.run); r.stage == done {
		out.State, out.Alone, out.Answer = idempotent.Done, 0, r.answer
	}
	copy(out.Fingerprint[:], r.print)
	return out
}

// Finish stores the answer. The error is one of [idempotent.Claim.Validate], or around what has kept
// the database from answering.
func (s *Store) Finish(ctx context.Context, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	return s.finish(ctx, s.db, key, c, answer)
}

// FinishTx is Finish as a part of tx. It locks the row until tx ends, and waits for a transaction that has
// locked it. If it fails tx has to be rolled back.
func (s *Store) FinishTx(ctx context.Context, tx *sql.Tx, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	if tx == nil {
		return false, errors.New("sqlrecords: finish: the transaction is nil")
	}
	return s.finish(ctx, tx, key, c, answer)
}

func (s *Store) finish(ctx context.Context, in runner, key string, c idempotent.Claim, answer []byte) (stored bool, err error) {
	if err := c.Validate(); err != nil {
		return false, err
	}
	if answer == nil {
		answer = []byte{}
	}
	digest := s.digest(key)
	err = s.try(ctx, in, func() (again bool, err error) {
		if stored, err = s.changes(ctx, in, s.sql.finish, c.Token, micros(c.Keep), answer, digest, c.Run[:]); stored || err != nil {
			return false, err
		}
		r, err := scan(in.QueryRowContext(ctx, s.sql.read, digest))
		switch {
		case errors.Is(err, sql.ErrNoRows):
			stored, err = s.changes(ctx, in, s.sql.insert, append([]any{digest}, values(&c, done, answer)...)...)
			return !stored, err
		case err != nil:
			return false, err
		case r.ended():
			stored, err = s.replaces(ctx, in, digest, &r, values(&c, done, answer))
			return !stored, err
		}
		stored = r.stage == done && r.by(c.Run)
		return false, nil
	})
	return stored && err == nil, failure("finish", err)
}

// GiveUp removes what c.Run has begun. The error is one of [idempotent.Claim.Validate], or around what
// has kept the database from answering.
func (s *Store) GiveUp(ctx context.Context, key string, c idempotent.Claim) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return failure("give up", s.try(ctx, s.db, func() (bool, error) {
		_, err := s.db.ExecContext(ctx, s.sql.giveUp, micros(c.Alone), s.digest(key), c.Run[:])
		return false, err
	}))
}

// Forget removes a record. The error is around what has kept the database from answering.
func (s *Store) Forget(ctx context.Context, key string) error {
	return failure("forget", s.try(ctx, s.db, func() (bool, error) {
		_, err := s.db.ExecContext(ctx, s.sql.forget, s.digest(key))
		return false, err
	}))
}

// try does until it is not to be done again. Victims of others are done again if they are transactions of
// their own.
func (s *Store) try(ctx context.Context, in runner, do func() (again bool, err error)) error {
	for range tries {
		again, err := do()
		if err != nil && in == runner(s.db) && isVictim(err) {
			again, err = true, ctx.Err()
		}
		if err != nil || !again {
			return err
		}
	}
	return errors.New("others have changed the record each time that it was to be changed")
}

func (s *Store) changes(ctx context.Context, in runner, statement string, args ...any) (bool, error) {
	result, err := in.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// replaces puts values in place of a row, if that is still what it was.
func (s *Store) replaces(ctx context.Context, in runner, digest []byte, r *row, values []any) (bool, error) {
	return s.changes(ctx, in, s.sql.replace, append(values, digest, r.run, r.stage, r.token, r.end)...)
}

// look reads a row, and begins it if there is none and one statement can do both.
func (s *Store) look(ctx context.Context, digest []byte, c *idempotent.Claim) (r row, began bool, err error) {
	args := []any{digest}
	if s.dialect == PostgreSQL {
		args = append(append(args, values(c, begun, nil)...), digest)
	}
	r, err = scan(s.db.QueryRowContext(ctx, s.sql.look, args...))
	return r, r.stage == begun && !r.there, err
}

// scan reads a row. Without one, its stage says whether it was inserted.
func scan(from *sql.Row) (r row, err error) {
	var began, alone int64
	var stage, token, free, end sql.NullInt64
	if err := from.Scan(&r.now, &began, &alone, &r.run, &stage, &token, &r.print, &free, &end, &r.answer); err != nil {
		return r, err
	}
	if alone == 0 {
		return r, errors.New("the connection has autocommit=0, so that nothing is committed; leave that out of the DSN")
	}
	r.there, r.stage, r.token, r.alone, r.end = stage.Valid, int(stage.Int64), token.Int64, free.Int64, end.Int64
	if !r.there && began > 0 {
		r.stage = begun
	}
	if r.there && (len(r.run) != 16 || len(r.print) != 32 || r.stage < begun || r.stage > givenUp) {
		return r, errors.New("a row of lockaround_record is none of this package")
	}
	return r, nil
}

// sweep deletes some rows that have ended, if it is time. That it fails does not matter to the call.
func (s *Store) sweep(ctx context.Context) {
	at, now := s.sweepAt.Load(), time.Now()
	if now.UnixNano() < at || !s.sweepAt.CompareAndSwap(at, now.Add(time.Minute).UnixNano()) {
		return
	}
	if result, err := s.db.ExecContext(ctx, s.sql.sweep); err == nil {
		if n, err := result.RowsAffected(); err == nil && n >= 100 {
			s.sweepAt.Store(0)
		}
	}
}
