package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// The states of items in the table.
const (
	waiting = 0
	done    = 1
	dead    = 2
)

// How long a transaction of the store may send nothing while it has a key's row locked. A
// statement counts as sent when it has come as a whole, so a large payload has more time.
const (
	patience = time.Second
	slowest  = 64 << 10 // bytes in a second, of the slowest link
)

// change is one step of a key, in a transaction.
type change struct {
	*line
	q        *sqlQueue
	ctx      context.Context
	tx       *sql.Tx
	digest   []byte
	patience time.Duration // how long the store's own transaction may send nothing; 0 if it is the caller's
	now      int64         // by the server's clock
	first    *item         // the first item, if it was read
	tells    int64         // when the key is due, if listeners are to be told; otherwise never
}

// item is a row of lockaround_queue_item.
type item struct {
	sequence           int64
	id, payload, trace []byte
	added              int64
}

func (c *change) exec(statement string, args ...any) (rows int64, err error) {
	r, err := c.tx.ExecContext(c.ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// of are the arguments that name the key, and more.
func (c *change) of(more ...any) []any { return append([]any{c.q.name, c.digest}, more...) }

// lock locks the key's row and reads it. found is false if there is none. c.now is from before the
// wait for the row: see read.
func (c *change) lock() (found bool, err error) {
	statement, args := c.q.statements.lock, c.of()
	if c.patience > 0 && c.q.dialect == PostgreSQL {
		statement, args = c.q.statements.lockOwn, append([]any{strconv.FormatInt(c.patience.Milliseconds(), 10)}, args...)
	}
	var ignored string
	targets := append([]any{&c.now, &ignored}, c.targets()...)
	err = c.tx.QueryRowContext(c.ctx, statement, args...).Scan(targets...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// time reads the time, now that the row is locked.
func (c *change) time() error {
	var now int64
	err := c.tx.QueryRowContext(c.ctx, c.q.statements.now).Scan(&now)
	c.now = max(c.now, now)
	return err
}

// read reads the time, now that the row is locked, and the first item, if there is one.
func (c *change) read() error {
	if c.first != nil && c.first.sequence == c.head {
		return nil
	}
	c.first = nil
	i := item{sequence: c.head}
	var added sql.NullInt64
	var now int64
	if err := c.tx.QueryRowContext(c.ctx, c.q.statements.read, c.of(c.head)...).Scan(&now, &i.id, &i.payload, &i.trace, &added); err != nil {
		return err
	}
	c.now = max(c.now, now)
	if c.length() == 0 {
		return nil
	}
	if !added.Valid {
		return queue.ErrDamaged
	}
	i.added = added.Int64
	c.first = &i
	return nil
}

// finish records how the first item has ended, and removes it from the queue.
func (c *change) finish(state int) error {
	if err := c.mark(c.q.statements.end, state, c.now); err != nil {
		return err
	}
	c.head, c.attempts = c.head+1, 0
	return nil
}

// mark writes a state of the first item.
func (c *change) mark(statement string, state int, ended int64) error {
	n, err := c.exec(statement, append([]any{state, c.attempts, ended}, c.of(c.head)...)...)
	if err == nil && n == 0 {
		return queue.ErrDamaged
	}
	return err
}

// kill makes the first item dead, and returns how many have died with it.
func (c *change) kill() (died int, err error) {
	c.running = false
	switch c.q.rules.OnDead {
	case queue.Hold:
		c.parked = true
		return 1, c.mark(c.q.statements.mark, dead, c.now)
	case queue.Cascade:
		died = c.length()
		if err := c.finish(dead); err != nil {
			return 0, err
		}
		if c.length() > 0 {
			if _, err := c.exec(c.q.statements.endRest, append([]any{dead, c.now}, c.of(c.head)...)...); err != nil {
				return 0, err
			}
			c.head = c.sequence + 1
		}
		return died, nil
	}
	return 1, c.finish(dead)
}

// begin begins the first item, if it is due.
func (c *change) begin(h queue.Holder) (s queue.Step, err error) {
	if err := c.read(); err != nil {
		return s, err
	}
	for c.length() > 0 && !c.parked {
		switch {
		case c.running: // the answer was lost
		case c.attempts >= int64(c.q.rules.Attempts):
			died, err := c.kill()
			if err != nil {
				return s, err
			}
			s.Died += died
			continue
		case c.now < c.next:
			c.settle()
			return c.step(s), nil
		default:
			c.attempts++
		}
		if err := c.read(); err != nil {
			return s, err
		}
		c.running, c.over, c.begun = true, false, c.now
		if c.q.rules.Spacing > 0 {
			c.next = c.now + micros(c.q.rules.Spacing) + micros(h.Grace)
		}
		c.worker, c.due = []byte(queue.Digest(h.Worker)), c.now+micros(h.For)
		s.Item = &queue.Item{
			ID: queue.ItemName(h.Key, string(c.first.id)), Sequence: c.head, Attempt: int(c.attempts),
			Payload: c.first.payload, Trace: string(c.first.trace), Age: duration(max(c.now-c.first.added, 0)),
		}
		return c.step(s), nil
	}
	c.settle()
	return c.step(s), nil
}

// settle gives up the claim of a key that has no run, and schedules it.
func (c *change) settle() {
	c.worker = nil
	c.due, c.idle = never, 0
	switch {
	case c.length() == 0:
		c.idle = c.now
	case !c.parked:
		c.due = max(c.now, c.next)
	}
}

// tell tells listeners when the key is due, once the step is committed.
func (c *change) tell() { c.tells = c.due }

// step completes what an operation returns.
func (c *change) step(s queue.Step) queue.Step {
	s.Left, s.Parked = c.length(), c.parked
	if s.Item == nil && s.Left > 0 && !s.Parked {
		s.In = duration(max(c.next-c.now, 0))
	}
	return s
}

// save writes the row, deletes what is kept no more, and notifies.
func (c *change) save() error {
	if c.head-c.pruned >= pruneEvery || c.now >= c.pruneAt {
		if _, err := c.exec(c.q.statements.prune, c.of(c.head, c.head-int64(c.q.rules.KeepCount), c.now-micros(c.q.rules.KeepFor))...); err != nil {
			return err
		}
		c.pruned, c.pruneAt = c.head, c.now+micros(c.q.rules.KeepFor)/4
	}
	if _, err := c.exec(c.q.statements.save, append(c.values(), c.of()...)...); err != nil {
		return err
	}
	if c.tells < never {
		return c.q.notify(c.ctx, c.tx, c.tells-c.now)
	}
	return nil
}

// pruneEvery is after how many ended items those that are kept no more are deleted. Until then
// they are there, and nobody is told of them.
const pruneEvery = 64

// line is the queue of one key: its row of lockaround_queue_key. All that changes a key or its
// items locks this row first, and no other key's beside it. So the steps of a key happen one after
// the other, and none waits for another key.
//
// Sequences are without gaps, so that the items that have not ended are those from head to
// sequence. Those below head have ended.
type line struct {
	sequence int64 // the last that was given
	head     int64 // of the first item that has not ended, or is dead and parked
	attempts int64 // of the first item

	token        int64 // the largest that has come
	running      bool  // token has begun the first item
	over         bool  // token is used up: it has found nothing to begin, or ended a run and begun no other
	parked       bool  // until Resume
	lastSequence int64 // of the run that token ended last
	lastAttempt  int64
	begun        int64 // when the run began
	next         int64 // the earliest next start

	worker  []byte // the digest of who has claimed it; empty if nobody has
	due     int64  // when it is due, or a claim ends; never if it has no items, or is parked
	idle    int64  // since when it has no items; 0 if it has some
	pruned  int64  // head, when what is kept no more was deleted last
	pruneAt int64  // when that is to be done next
}

const never = math.MaxInt64

// field is a column of lockaround_queue_key and where its value is.
type field struct {
	column string
	value  any // *int64, *bool or *[]byte
}

func (l *line) fields() []field {
	return []field{
		{"sequence", &l.sequence},
		{"head", &l.head},
		{"attempts", &l.attempts},
		{"token", &l.token},
		{"running", &l.running},
		{"token_over", &l.over},
		{"parked", &l.parked},
		{"last_sequence", &l.lastSequence},
		{"last_attempt", &l.lastAttempt},
		{"begun_us", &l.begun},
		{"next_us", &l.next},
		{"claimed_by", &l.worker},
		{"due_us", &l.due},
		{"idle_us", &l.idle},
		{"pruned", &l.pruned},
		{"prune_us", &l.pruneAt},
	}
}

// flag reads a bool, which is a number in both databases.
type flag struct{ to *bool }

// Scan is of sql.Scanner.
func (f flag) Scan(v any) error {
	var n sql.NullInt64
	err := n.Scan(v)
	*f.to = n.Int64 != 0
	return err
}

// targets are where a row is read into, and values what it is written with.
func (l *line) targets() (all []any) {
	for _, f := range l.fields() {
		if b, ok := f.value.(*bool); ok {
			all = append(all, flag{b})
			continue
		}
		all = append(all, f.value)
	}
	return all
}

func (l *line) values() (all []any) {
	for _, f := range l.fields() {
		switch v := f.value.(type) {
		case *int64:
			all = append(all, *v)
		case *bool:
			n := int64(0)
			if *v {
				n = 1
			}
			all = append(all, n)
		case *[]byte:
			all = append(all, append([]byte{}, *v...)) // nil would be NULL
		}
	}
	return all
}

// length is how many items have not ended, a parked one included.
func (l *line) length() int { return int(l.sequence - l.head + 1) }

// ahead is how many items are before that one, which may have ended.
func (l *line) ahead(sequence int64) int { return int(max(sequence-l.head, 0)) }

// keeps reports whether an item that has ended is kept.
func (l *line) keeps(r queue.Rules, sequence, ended, now int64) bool {
	return sequence >= l.head-int64(r.KeepCount) && now-ended < micros(r.KeepFor)
}
