package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// linger is how long a key's row stays after its last lease or place: for its token and
// its ended owners.
const linger = int64(time.Minute / time.Microsecond)

// decision is a transaction that holds a key's row, and decides on it. Its methods change
// the board and the table alike. Nobody else changes the claims of a key meanwhile, but for
// renewals and refreshes, which only make one last that still does.
type decision struct {
	board
	s   *session
	a   *attempt
	ctx context.Context
	tx  *sql.Tx
	key string

	sent time.Time // before the server's time was asked for

	dirty  bool // the row differs from the board
	wrote  bool // there is something to commit
	news   bool // somebody began to wait, or has asked: the holders are told
	pushes []push
	turns  []driver.Owner // of this session, that were granted the key while they waited
}

// push is a notification.
type push struct{ channel, payload string }

// The kinds of notification, each followed by the mark of the owner that it is for.
const (
	pushTurn = 'g' // the key is free for it
	pushWant = 'w' // somebody else wants the key
	pushLost = 'l' // its lease was taken from it
	pushKept = 'k' // the key is free for it at another time than its lease's end
)

// mark names an owner to its session, and tells nobody else who it is.
func mark(o driver.Owner) string {
	sum := sha256.Sum256(o[:])
	return hex.EncodeToString(sum[:8])
}

// channel is where a session listens.
func channel(n name) string { return "lockaround_" + hex.EncodeToString(n[:]) }

// readCommitted lets a statement see what others have committed before it, and takes no
// locks in MySQL on keys that are not there.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// errKey refuses the key of the floor's row, and those that no index holds.
var errKey = &driver.PermanentError{Err: fmt.Errorf("sql: the key is empty or too long; use 1 to %d bytes", MaxKeyLength)}

// decide locks a key's row, lets f decide, and commits what it has changed. f may run
// several times, in transactions of which at most the last is committed, or, if the reply
// to a COMMIT was lost, finds what it did before.
func (s *session) decide(ctx context.Context, a *attempt, key string, f func(*decision) error) error {
	if key == "" || len(key) > MaxKeyLength {
		return errKey
	}
	leave, err := s.turns.enter(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	if a.isGone() {
		return errGone
	}
	a.progress()
	tx, err := s.db.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	a.progress()
	if a.isGone() {
		return errGone
	}
	d := &decision{s: s, a: a, ctx: ctx, tx: tx, key: key}
	if err := d.lock(); err != nil {
		return err
	}
	a.progress()
	if a.isGone() {
		return errGone
	}
	if err := d.load(); err != nil {
		return err
	}
	a.progress()
	if a.isGone() {
		return errGone
	}
	if err := d.collect(); err != nil {
		return err
	}
	if err := f(d); err != nil {
		return err
	}
	if err := d.promote(); err != nil {
		return err
	}
	if err := d.save(); err != nil {
		return err
	}
	if d.wrote {
		if err := a.commit(tx); err != nil {
			return err
		}
	}
	s.claims.nudge(d.turns...)
	return nil
}

// lock locks the key's row, and creates it if need be.
func (d *decision) lock() error {
	for range 10 { // it may be swept in between
		var ignored sql.NullString
		err := d.tx.QueryRowContext(d.ctx, d.s.q.lock, []byte(d.key)).Scan(&d.token, &d.floor, &d.ousted, &d.asked, &d.keep, &d.ended, &ignored)
		if err != sql.ErrNoRows {
			return err
		}
		d.a.progress()
		if err := d.exec(d.s.q.ensure, linger, []byte(d.key)); err != nil {
			return err
		}
	}
	return fmt.Errorf("the row of a key was swept ten times while it was to be locked")
}

// load reads the claims. It is a statement of its own, so that it sees what those wrote
// who held the row before.
func (d *decision) load() error {
	d.sent = time.Now()
	rows, err := d.tx.QueryContext(d.ctx, d.s.q.claims, []byte(d.key))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	d.claims = d.claims[:0]
	for rows.Next() {
		var (
			owner, session                               []byte
			st, turn, room, token, granted, expires, ttl sql.NullInt64
			listens                                      sql.NullInt64
		)
		if err := rows.Scan(&d.now, &owner, &st, &turn, &room, &token, &granted, &expires, &ttl, &session, &listens); err != nil {
			return err
		}
		if !st.Valid {
			continue // there is no claim
		}
		c := claim{
			state: state(st.Int64), turn: turn.Int64, room: int32(room.Int64), token: token.Int64,
			granted: granted.Int64, expires: expires.Int64, ttl: ttl.Int64, listens: listens.Int64 != 0,
		}
		if copy(c.owner[:], owner) != len(owner) || copy(c.session[:], session) != len(session) {
			return &driver.PermanentError{Err: fmt.Errorf("sql: a claim's owner has %d bytes and its session %d; both have 16", len(owner), len(session))}
		}
		d.claims = append(d.claims, c)
	}
	d.order()
	return rows.Err()
}

// collect ends what has expired. The table has the last word: a renewal may have come
// between the reading and now.
func (d *decision) collect() error {
	again := false
	for i := 0; i < len(d.claims); {
		c := d.claims[i]
		if c.expires > d.now {
			i++
			continue
		}
		done, err := d.tx.ExecContext(d.ctx, d.s.q.expire, []byte(d.key), c.owner[:], d.now)
		if err != nil {
			return err
		}
		d.a.progress()
		n, err := done.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			again = true
			i++
			continue
		}
		d.part(c.owner)
		d.dirty, d.wrote = true, true
	}
	if again {
		return d.load()
	}
	return nil
}

// save writes the row if it differs, and tells others.
func (d *decision) save() error {
	if d.dirty {
		if err := d.exec(d.s.q.save, d.token, d.ousted, d.asked, d.keep, d.ended, []byte(d.key)); err != nil {
			return err
		}
	}
	d.tell()
	for _, p := range d.pushes {
		if err := d.exec(d.s.q.notify, p.channel, p.payload); err != nil {
			return err
		}
	}
	return nil
}

// promote grants the key to the first of the queue for as long as they fit. Their leases
// last as their places would have: whoever is alive makes its own last longer when it
// learns of it.
func (d *decision) promote() error {
	for c := d.head(); c != nil && d.fits(c.room); c = d.head() {
		if err := d.grant(c, max(c.expires, d.now+c.ttl/3), c.ttl); err != nil {
			return err
		}
	}
	return nil
}

// grant turns a place into a lease.
func (d *decision) grant(c *claim, expires, ttl int64) error {
	d.push(c, pushTurn)
	if c.session == d.s.name {
		d.turns = append(d.turns, c.owner)
	}
	o, token := c.owner, d.next()
	c.token, c.state, c.turn, c.granted, c.expires, c.ttl = token, holds, noTurn, d.now, expires, ttl
	d.order()
	return d.exec(d.s.q.grant, token, d.now, expires, ttl, []byte(d.key), o[:])
}

// tell has those told whom the decision concerns, as far as they listen.
func (d *decision) tell() {
	if d.news {
		for i := range d.claims {
			if c := &d.claims[i]; c.state == holds {
				d.push(c, pushWant)
			}
		}
	}
}

func (d *decision) push(c *claim, kind byte) {
	if c.listens && d.s.d == PostgreSQL {
		d.pushes = append(d.pushes, push{channel(c.session), string(kind) + mark(c.owner)})
	}
}

func (d *decision) exec(statement string, args ...any) error {
	d.wrote = true
	_, err := d.tx.ExecContext(d.ctx, statement, args...)
	if err == nil {
		d.a.progress()
	}
	return err
}

// insert adds a claim.
func (d *decision) insert(c claim) error {
	c.session, c.listens = d.s.name, d.s.source != nil
	listens := 0
	if c.listens {
		listens = 1
	}
	d.claims = append(d.claims, c)
	d.order()
	return d.exec(d.s.q.add, []byte(d.key), c.owner[:], int64(c.state), c.turn, int64(c.room), c.token,
		c.granted, c.expires, c.ttl, c.session[:], listens)
}

// end ends an owner, whatever it is at: its lease, at once or when keep has passed since
// its grant, or its place. It reports whether it has ended a lease, or had before with
// Keep.
func (d *decision) end(o driver.Owner, keep time.Duration) (ended bool, err error) {
	c := d.find(o)
	switch {
	case c == nil:
		return false, nil
	case c.state == kept:
		return true, nil
	}
	held := c.state == holds
	d.dirty = true
	if until := min(c.granted, d.now) + keep.Microseconds(); held && until > d.now {
		d.bury(o)
		c.state, c.expires, c.ttl, c.listens = kept, until, until-d.now, false
		if next := d.head(); next != nil {
			d.push(next, pushKept)
		}
		d.board.keep = max(d.board.keep, until)
		return true, d.exec(d.s.q.keep, c.expires, c.ttl, []byte(d.key), o[:])
	}
	d.part(o)
	return held, d.exec(d.s.q.remove, []byte(d.key), o[:])
}
