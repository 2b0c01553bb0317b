package sqlqueue

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Claim names keys that are due. Without any it is one statement. It waits for no row that
// somebody else has locked: such a key is left out.
func (q *sqlQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	if r.Shard != 0 {
		return queue.Claims{}, fmt.Errorf("sqlqueue: claim: there is no shard %d; the queue has one", r.Shard)
	}
	if r.Max > 0 {
		if err := q.sweep(ctx); err != nil {
			return queue.Claims{}, err
		}
	}
	now, due, err := q.earliest(ctx, q.db)
	if err != nil {
		return queue.Claims{}, failure("claim", err)
	}
	if len(r.Keep)+len(r.Return) == 0 && (due > now || r.Max < 1) {
		return queue.Claims{Next: until(now, due)}, nil
	}
	var c queue.Claims
	err = q.transact(ctx, "claim", func(tx *sql.Tx) (err error) {
		c, err = q.claim(ctx, tx, r, now)
		return err
	})
	if err != nil {
		return queue.Claims{}, err
	}
	if len(r.Return) > 0 {
		q.listeners.tell(0)
	}
	return c, nil
}

// earliest reads which key is due first; due is never if there is none.
func (q *sqlQueue) earliest(ctx context.Context, from interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) (now, due int64, err error) {
	q.looked.Store(time.Now().UnixNano())
	var first sql.NullInt64
	err = from.QueryRowContext(ctx, q.statements.due, q.name).Scan(&now, &first)
	if due = never; first.Valid {
		due = first.Int64
	}
	return now, due, err
}

// until is a Claims.Next.
func until(now, due int64) time.Duration {
	if due == never {
		return -1
	}
	return duration(max(due-now, 0))
}

// lockedPause is after which time a worker is to look again, if keys that are due are locked by others'
// transactions.
const lockedPause = 50 * time.Millisecond

func (q *sqlQueue) claim(ctx context.Context, tx *sql.Tx, r queue.ClaimRequest, now int64) (queue.Claims, error) {
	worker := []byte(queue.Digest(r.Worker))
	ends := now + micros(r.For)
	if err := q.move(ctx, tx, r.Keep, `due_us = ?`, []any{ends}, worker); err != nil {
		return queue.Claims{}, err
	}
	if err := q.move(ctx, tx, r.Return, `claimed_by = '', due_us = GREATEST(next_us, ?)`, []any{now}, worker); err != nil {
		return queue.Claims{}, err
	}
	if len(r.Return) > 0 {
		if err := q.notify(ctx, tx, 0); err != nil {
			return queue.Claims{}, err
		}
	}
	var c queue.Claims
	if r.Max > 0 {
		// Workers that look at the same time take different ones, if there are many.
		due, err := q.digests(ctx, tx, q.statements.claim, q.name, now, spread*r.Max)
		if err != nil {
			return queue.Claims{}, err
		}
		rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
		digests, keys, err := q.lock(ctx, tx, due[:min(len(due), r.Max)], `lock_key`, `due_us <= ?`, now)
		if err != nil {
			return queue.Claims{}, err
		}
		if err := q.update(ctx, tx, digests, `claimed_by = ?, due_us = ?`, []any{worker, ends}); err != nil {
			return queue.Claims{}, err
		}
		for _, k := range keys {
			c.Keys = append(c.Keys, string(k))
		}
	}
	later, due, err := q.earliest(ctx, tx)
	if err != nil {
		return queue.Claims{}, err
	}
	if c.Next = until(later, due); c.Next == 0 && len(c.Keys) < r.Max {
		c.Next = lockedPause
	}
	return c, nil
}

// move changes the claims of a worker on keys, and leaves alone what is not the worker's, or is locked
// just now: a step of the key, which decides on its claim itself.
func (q *sqlQueue) move(ctx context.Context, tx *sql.Tx, keys []string, sets string, args []any, worker []byte) error {
	if len(keys) == 0 {
		return nil
	}
	digests := make([][]byte, len(keys))
	for i, k := range keys {
		digests[i] = []byte(queue.Digest(k))
	}
	mine, _, err := q.lock(ctx, tx, digests, `lock_key`, `claimed_by = ?`, worker)
	if err != nil {
		return err
	}
	return q.update(ctx, tx, mine, sets, args)
}

// lock locks those rows of keys for which a condition holds, and leaves out what others have locked. It
// returns the digests and another column of them. It reads by the primary key: a locking read
// of a range locks the row behind it for a while as well, which others would then leave out.
func (q *sqlQueue) lock(ctx context.Context, tx *sql.Tx, digests [][]byte, column, condition string, arg any) (locked, values [][]byte, err error) {
	if len(digests) == 0 {
		return nil, nil, nil
	}
	where, of := in(digests)
	rows, err := tx.QueryContext(ctx, q.dialect.sql(`SELECT digest, `+column+` FROM `+q.byPrimaryKey()+` WHERE queue_name = ? AND `+where+` AND `+condition+` FOR UPDATE SKIP LOCKED`),
		append(append([]any{q.name}, of...), arg)...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = rows.Close() }() // Err has its error
	for rows.Next() {
		var digest, value []byte
		if err := rows.Scan(&digest, &value); err != nil {
			return nil, nil, err
		}
		locked, values = append(locked, digest), append(values, value)
	}
	return locked, values, rows.Err()
}

// byPrimaryKey is the table of keys, for a statement that reads it in no other way.
func (q *sqlQueue) byPrimaryKey() string {
	if q.dialect == MySQL {
		return `lockaround_queue_key FORCE INDEX (PRIMARY)`
	}
	return `lockaround_queue_key`
}

// digests runs a query for digests.
func (q *sqlQueue) digests(ctx context.Context, tx *sql.Tx, query string, args ...any) (all [][]byte, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err has its error
	for rows.Next() {
		var digest []byte
		if err := rows.Scan(&digest); err != nil {
			return nil, err
		}
		all = append(all, digest)
	}
	return all, rows.Err()
}

// update changes rows that are locked.
func (q *sqlQueue) update(ctx context.Context, tx *sql.Tx, digests [][]byte, sets string, args []any) error {
	if len(digests) == 0 {
		return nil
	}
	where, of := in(digests)
	_, err := tx.ExecContext(ctx, q.dialect.sql(`UPDATE `+q.byPrimaryKey()+` SET `+sets+` WHERE queue_name = ? AND `+where),
		append(append(args, q.name), of...)...)
	return err
}

func in(digests [][]byte) (where string, args []any) {
	for _, d := range digests {
		args = append(args, d)
	}
	return `digest IN (?` + strings.Repeat(`, ?`, len(digests)-1) + `)`, args
}

// sweepEvery is how often a process looks for keys to forget, and sweepAtOnce how many it forgets then.
const (
	sweepEvery  = time.Minute
	sweepAtOnce = 100
)

// spread is of how many times more keys than it claims a claim chooses.
const spread = 4

// sweep forgets keys that have been idle for Rules.KeepFor. The largest of their sequences is kept
// in the row of the empty digest, for those that come again.
func (q *sqlQueue) sweep(ctx context.Context) error {
	at, now := q.sweepAt.Load(), time.Now()
	if now.UnixNano() < at || !q.sweepAt.CompareAndSwap(at, now.Add(sweepEvery).UnixNano()) {
		return nil
	}
	full := false
	err := q.transact(ctx, "forget idle keys", func(tx *sql.Tx) error {
		clock, _, err := q.earliest(ctx, tx)
		if err != nil {
			return err
		}
		until := clock - micros(q.rules.KeepFor)
		idle, err := q.digests(ctx, tx, q.statements.sweep, q.name, until, sweepAtOnce)
		if err != nil {
			return err
		}
		digests, sequences, err := q.lock(ctx, tx, idle, `sequence`, `idle_us > 0 AND idle_us <= ?`, until)
		if err != nil || digests == nil {
			return err
		}
		full = len(idle) == sweepAtOnce
		var floor int64
		for _, text := range sequences {
			sequence, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				return err
			}
			floor = max(floor, sequence)
		}
		where, of := in(digests)
		for _, table := range []string{"lockaround_queue_item", "lockaround_queue_key"} {
			if _, err := tx.ExecContext(ctx, q.dialect.sql(`DELETE FROM `+table+` WHERE queue_name = ? AND `+where), append([]any{q.name}, of...)...); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, q.statements.setFloor, q.name, floor, floor+1)
		return err
	})
	if full || err != nil {
		q.sweepAt.Store(0)
	}
	return err
}

// localListeners tells those who listen in this process, by the same Store, what was done in it.
type localListeners struct {
	mu  sync.Mutex
	all map[*listener]bool
}

// listener hears when keys get due: of the earliest, if there are several.
type listener struct {
	mu   sync.Mutex
	at   time.Time // zero: nothing to tell
	knew chan struct{}
}

func (ls *localListeners) tell(in time.Duration) {
	at := time.Now().Add(in)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.all {
		l.mu.Lock()
		if l.at.IsZero() || at.Before(l.at) {
			l.at = at
		}
		l.mu.Unlock()
		select {
		case l.knew <- struct{}{}:
		default:
		}
	}
}

func (ls *localListeners) listen() (l *listener, stop func()) {
	l = &listener{knew: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all[l] = true
	return l, func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		delete(ls.all, l)
	}
}

// next is what was told last.
func (l *listener) next() (at time.Time, told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, l.at = l.at, time.Time{}
	return at, !at.IsZero()
}

// notify tells the processes that listen by PostgreSQL, once tx is committed.
func (q *sqlQueue) notify(ctx context.Context, tx *sql.Tx, in int64) error {
	if q.notifications == nil {
		return nil
	}
	_, err := tx.ExecContext(ctx, q.statements.channel, q.channel, strconv.FormatInt(max(in, 0), 10))
	return err
}

// Listen tells of keys that get due, until ctx ends: by notifications, or by looking.
func (q *sqlQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	if q.notifications == nil {
		return q.look(ctx, up, due)
	}
	err := q.notifications.Listen(ctx, q.channel, up, func(payload string) {
		if in, err := strconv.ParseInt(payload, 10, 64); err == nil && in >= 0 {
			due(0, duration(in))
		}
	})
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return failure("listen", err)
}

// look looks which key is due first, and hears what this process does.
func (q *sqlQueue) look(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	l, stop := q.listeners.listen()
	defer stop()
	up()
	for {
		wait := time.NewTimer(time.Until(time.Unix(0, q.looked.Load()).Add(q.poll)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return ctx.Err()
		case <-l.knew:
			wait.Stop()
			if at, told := l.next(); told {
				due(0, max(time.Until(at), 0))
			}
		case <-wait.C:
			if time.Since(time.Unix(0, q.looked.Load())) < q.poll {
				continue // a worker has looked meanwhile
			}
			now, first, err := q.earliest(ctx, q.db)
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return failure("listen", err)
			case first != never:
				due(0, until(now, first))
			}
		}
	}
}
