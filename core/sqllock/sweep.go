package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Purge removes rows that are no longer used: keys that nobody holds or waits for, leases
// and places that have expired, and rows of [InTx] that are older than an hour and that
// nobody holds. It returns how many rows it has removed.
//
// It is safe while others take locks: a row that was removed is created again when it is
// needed. Sessions purge the lease tables once a minute and after 1,024 acquisitions. So you
// need Purge only if you use [InTx] with ever new keys; call it from a periodic job. It does
// not wait for locks of [InTx], and several processes may call it at once.
func Purge(ctx context.Context, db *sql.DB, d Dialect) (int, error) {
	if err := usable(db, d); err != nil {
		return 0, fmt.Errorf("sqllock: purge: %w", err)
	}
	s := &session{config: config{db: db, d: d, q: newQueries(d, true)}}
	s.tables.init(s.config)
	s.spent.config = s.config
	total := 0
	for _, sweep := range []func(context.Context) (int, error){
		func(ctx context.Context) (int, error) { return s.sweep(ctx, &attempt{}) },
		s.sweepTxRows,
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

// sweepLoop sweeps once a minute, and whenever many claims were added, until nothing is left of what the
// session has used. The interval is random, so that processes sweep at different times.
func (s *session) sweepLoop() {
	for {
		minute := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(time.Minute)))
		select {
		case <-minute.C:
		case <-s.claims.manyAdded:
			minute.Stop()
		case <-s.Open.Done():
			minute.Stop()
			return
		}
		if s.claims.beginSweep(time.Now()) {
			s.sweepAll()
		}
	}
}

// sweepAll sweeps as long as that finds much. What fails is left to the next sweep.
func (s *session) sweepAll() {
	for n := sweepBatch; n >= sweepBatch/2; {
		began := time.Now()
		var err error
		if n, _, err = runAttempt(s.Ctx, s, s.Closing, s.sweep); err != nil {
			s.claims.notSwept()
			return
		}
		// The database has the pause to itself.
		if !kit.Sleep(s.Open, sweepShare*time.Since(began)) {
			return
		}
	}
}

const (
	sweepBatch = 512  // how many rows of a kind one sweep reads at most
	sweepAfter = 1024 // how many claims are many
	sweepShare = 4    // how many times as long as a sweep the pause after it is
)

// sweep removes claims that expired more than ten seconds ago, and idle rows of keys without
// claims.
func (s *session) sweep(ctx context.Context, a *attempt) (int, error) {
	expired, err := s.selectKeys(ctx, `SELECT DISTINCT lock_key FROM lockaround_claim WHERE {alone} AND expires_us < {now} - 10000000 AND expires_us > 0 ORDER BY lock_key LIMIT ?`, sweepBatch)
	if err != nil {
		return 0, err
	}
	for _, key := range expired {
		if err := s.decide(ctx, a, string(key), func(*decision) error { return nil }); err != nil {
			return 0, err
		}
	}
	spent, err := s.sweepSpent(ctx)
	n := len(expired) + spent
	if err != nil {
		return n, err
	}
	idle, err := s.selectKeys(ctx, `SELECT lock_key FROM lockaround_lock l WHERE {alone} AND keep_us < {now} AND OCTET_LENGTH(lock_key) > 0
AND NOT EXISTS (SELECT 1 FROM lockaround_claim c WHERE c.lock_key = l.lock_key) ORDER BY keep_us LIMIT ?`, sweepBatch)
	if err != nil || len(idle) == 0 {
		return n, err
	}
	placeholders, args := inList(idle)
	// Commit the floor first, so that a row that is created again starts above its old
	// tokens.
	var highest int64
	if err := s.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&highest) },
		s.d.sql(`SELECT COALESCE(MAX(GREATEST(token, floor_token)), 0) FROM lockaround_lock WHERE {alone} AND lock_key IN `+placeholders+`{all}`), args...); err != nil {
		return n, err
	}
	if err := s.raiseFloor(ctx, highest); err != nil {
		return n, err
	}
	// A claim that was added meanwhile does not need the row: it has its token itself.
	done, err := s.exec(ctx, s.d.sql(`DELETE FROM lockaround_lock WHERE {alone} AND lock_key IN `+placeholders+` AND keep_us < {now} AND token <= ?`), append(args, highest)...)
	if err != nil {
		return n, err
	}
	removed, err := done.RowsAffected()
	return n + int(removed), err
}

// sweepSpent deletes spent claims that sessions have left behind. What fails is left to the next
// sweep.
func (s *session) sweepSpent(ctx context.Context) (n int, err error) {
	var spent []driver.ID
	if err := s.query(ctx, func(rows *sql.Rows) error {
		var key, owner []byte
		err := rows.Scan(&key, &owner)
		spent = append(spent, newID(key, owner))
		return err
	}, s.d.sql(`SELECT lock_key, owner FROM lockaround_claim WHERE {alone} AND expires_us = 0 LIMIT ?`), sweepBatch); err != nil {
		return 0, err
	}
	for _, id := range spent {
		if err := s.spent.delete(ctx, id); err == nil {
			n++
		}
	}
	return n, ctx.Err()
}

// raiseFloor makes every key whose row is created from now on start above a token.
func (s *session) raiseFloor(ctx context.Context, token int64) error {
	statement := `INSERT INTO lockaround_lock (lock_key, floor_token) SELECT x'', ? FROM DUAL WHERE {alone}
ON DUPLICATE KEY UPDATE floor_token = GREATEST(lockaround_lock.floor_token, VALUES(floor_token))`
	if s.d == PostgreSQL {
		statement = `INSERT INTO lockaround_lock AS f (lock_key, floor_token) VALUES ('', ?) ON CONFLICT (lock_key) DO UPDATE SET floor_token = GREATEST(f.floor_token, excluded.floor_token)`
	}
	_, err := s.exec(ctx, s.d.sql(statement), token)
	return err
}

// sweepTxRows removes old rows of InTx that no transaction holds.
func (s *session) sweepTxRows(ctx context.Context) (n int, err error) {
	err = s.inTx(ctx, func(tx tx) error {
		rows, err := tx.QueryContext(ctx, s.d.sql(`SELECT lock_key FROM lockaround_row WHERE created_us < {now} - 3600000000 LIMIT ? FOR UPDATE SKIP LOCKED`), sweepBatch)
		keys, err := scanKeys(rows, err)
		if n = len(keys); err != nil || n == 0 {
			return err
		}
		placeholders, args := inList(keys)
		if _, err := tx.ExecContext(ctx, s.d.sql(`DELETE FROM lockaround_row WHERE lock_key IN `+placeholders), args...); err != nil {
			return err
		}
		return tx.Commit()
	})
	return n, err
}

func (s *session) selectKeys(ctx context.Context, query string, args ...any) (keys [][]byte, err error) {
	err = s.alone(ctx, func(x executor) error {
		rows, err := x.QueryContext(ctx, s.d.sql(query), args...)
		keys, err = scanKeys(rows, err)
		return err
	})
	return keys, err
}

func scanKeys(rows *sql.Rows, err error) (keys [][]byte, _ error) {
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		var key []byte
		err := rows.Scan(&key)
		keys = append(keys, key)
		return err
	})
	return keys, err
}

// inList returns the placeholders of an IN list, and the keys as arguments.
func inList(keys [][]byte) (placeholders string, args []any) {
	for _, k := range keys {
		args = append(args, k)
	}
	return "(" + strings.TrimSuffix(strings.Repeat("?, ", len(keys)), ", ") + ")", args
}

// spentClaims are claims of MySQL that were released, and whose rows are to be deleted. Nobody
// counts them any more. Those that a session leaves behind are swept.
type spentClaims struct {
	config
	mu     sync.Mutex
	ids    []driver.ID
	since  time.Time // when the first of ids was added
	worker *kit.Worker
}

const (
	spentAtOnce = 32                    // a statement deletes no more than that
	spentFor    = 20 * time.Millisecond // how long one may wait for others
)

func (c *spentClaims) init(of config, life *kit.Life) {
	c.config = of
	c.worker = kit.NewWorker(life, func() time.Duration { return c.clear(life.Ctx) })
}

// add adds a claim.
func (c *spentClaims) add(id driver.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = append(c.ids, id)
	switch len(c.ids) {
	case 1:
		c.since = time.Now()
		c.worker.Wake()
	case spentAtOnce:
		c.worker.Wake()
	}
}

// next returns claims to delete now, or how long to wait for them.
func (c *spentClaims) next() (ids []driver.ID, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch left := spentFor - time.Since(c.since); {
	case len(c.ids) == 0:
		return nil, -1
	case len(c.ids) < spentAtOnce && left > 0:
		return nil, left
	}
	n := min(len(c.ids), spentAtOnce)
	ids, c.ids = c.ids[:n:n], c.ids[n:]
	return ids, 0
}

// clear deletes spent claims, and returns when to do so again.
func (c *spentClaims) clear(ctx context.Context) time.Duration {
	ids, wait := c.next()
	if wait != 0 {
		return wait
	}
	_ = c.delete(ctx, ids...) // otherwise they are swept
	return 0
}

// delete deletes spent claims in one statement.
func (c *spentClaims) delete(ctx context.Context, ids ...driver.ID) error {
	var values []any
	for _, id := range ids {
		values = append(values, []byte(id.Key), id.Owner[:])
	}
	among := strings.TrimPrefix(strings.Repeat(" OR (lock_key = ? AND owner = ?)", len(ids)), " OR ")
	_, err := c.exec(ctx, c.d.text(`DELETE c FROM lockaround_claim c FORCE INDEX (PRIMARY) WHERE {alone} AND expires_us = 0 AND (`+among+`)`, values...))
	return err
}
