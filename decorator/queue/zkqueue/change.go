package zkqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

// change is one step of a key: its record as it is to be, and what is written with it.
type change struct {
	*line
	q       *zkQueue
	ctx     context.Context
	digest  string
	exists  bool  // the record is there, in that version
	version int32 // of the record
	exact   bool  // now is the time of this call's own last write

	writes bool // the record is to be written; otherwise its version is checked
	again  bool // the step goes on once it is written, since it needs to know the time
	tells  bool // listeners are to be told when the key is due
	entry  entry
	ops    []any // of items, beside the record
	guard  []any // what must be as it was read, beside the record

	died  int
	begun *item // of the run that was begun
}

// item reads an item. What has not ended, and is not there, is lost.
func (c *change) item(sequence int64) (*item, error) {
	n, err := c.q.get(c.ctx, c.q.item(c.digest, sequence))
	switch {
	case err != nil:
		return nil, err
	case n == nil && sequence >= c.Head:
		return nil, queue.ErrDamaged
	case n == nil:
		return nil, nil
	}
	return parseItem(n.data, n.stat)
}

// move gives the key another entry.
func (c *change) move(k kind, at int64) { c.entry = entry{k, at, c.digest} }

// settle gives up the claim of a key that has no run, and schedules it.
func (c *change) settle() {
	c.Worker = ""
	_, latest := c.q.clock.between()
	switch {
	case c.length() == 0:
		c.move(idle, latest+millis(c.q.rules.KeepFor))
	case c.Parked:
		c.move(parked, c.now)
	case c.NextIn > 0:
		c.move(due, max(c.Next, latest+c.NextIn))
	case c.Next > c.now:
		c.move(due, c.Next)
	default:
		c.move(since, c.now)
	}
}

// claim claims the key for a worker.
func (c *change) claim(worker string, lasts int64) {
	c.Worker = queue.Digest(worker)
	earliest, _ := c.q.clock.between()
	c.move(claimed, earliest+lasts)
}

// finish records how the first item has ended, and removes it from the queue.
func (c *change) finish(state string) {
	ended := item{ID: c.HeadID, Floor: c.Floor, State: state, Attempts: c.Attempts}
	c.ops = append(c.ops, &zk.SetDataRequest{Path: c.q.item(c.digest, c.Head), Data: ended.bytes(), Version: -1})
	c.advance()
}

// advance makes the next item the first.
func (c *change) advance() { c.Head, c.HeadID, c.Attempts = c.Head+1, nil, 0 }

// kill makes the first item dead, of which a run was begun, and those behind it if the rules say so.
func (c *change) kill() {
	c.Running = false
	switch c.q.rules.OnDead {
	case queue.Hold:
		c.Parked, c.ParkedAt = true, atWrite
		c.died++
	case queue.Cascade:
		c.died += c.length()
		c.finish(dead)
		if c.length() > 0 {
			c.DeadTo, c.DeadAt = c.Sequence, atWrite
			c.Head = c.Sequence + 1
		}
	default:
		c.died++
		c.finish(dead)
	}
}

// begin begins the first item, if it is due.
//
// Whether it is due, the time of a write decides. That of the last write is enough if the key is due by
// it. Otherwise what there is to be written is written first, which says what time it is.
func (c *change) begin(h queue.Holder) error {
	c.writes = true
	for c.length() > 0 && !c.Parked {
		switch {
		case c.Running: // the answer was lost
		case c.Attempts >= c.q.rules.Attempts:
			c.kill()
			continue
		case c.NextIn > 0, c.now < c.Next && c.exact:
			c.settle()
			c.Over = true
			return nil
		case c.now < c.Next:
			c.again = true
			return nil
		default:
			c.Attempts++
		}
		i, err := c.item(c.Head)
		if err != nil {
			return err
		}
		c.begun = i
		c.HeadID, c.Running, c.Over, c.Begun = i.ID, true, false, atWrite
		if spacing := c.q.rules.Spacing; spacing > 0 {
			// A millisecond more, for the time of a write is rounded down.
			c.Next, c.NextIn = 0, millis(spacing)+millis(h.Grace)+1
		}
		c.claim(h.Worker, millis(h.For))
		return nil
	}
	c.settle()
	c.Over = true
	return nil
}

// end ends the run of c.Token, or says again how it has ended.
func (c *change) end(h queue.Holder, e queue.Ending) error {
	next := e.Next
	ended := run{e.Sequence, e.Attempt}
	switch {
	case c.Running && ended == run{c.Head, c.Attempts}:
		c.endRun(e)
		c.Running, c.Over, c.Last = false, true, ended
	case ended != c.Last:
		return queue.ErrSuperseded
	default:
		next = next || c.Running // its answer was lost, with the next item in it
	}
	if next {
		return c.begin(h)
	}
	c.writes, c.tells = true, true
	c.settle()
	return nil
}

// endRun writes how a run has ended.
func (c *change) endRun(e queue.Ending) {
	if spacing := c.q.rules.Spacing; spacing > 0 {
		c.Next = c.Begun + millis(spacing) + millis(e.Late) + 1
	}
	switch {
	case e.Outcome == queue.Done:
		c.finish(done)
	case e.Outcome == queue.Dead, c.Attempts >= c.q.rules.Attempts:
		c.kill()
	case e.After > 0:
		c.NextIn = millis(e.After) + 1
	}
}

// step is what Begin and End return, once all is written.
func (c *change) step() queue.Step {
	s := queue.Step{Died: c.died}
	if !c.exists {
		return s
	}
	s.Left, s.Parked = c.length(), c.Parked
	switch {
	case c.begun != nil:
		s.Item = &queue.Item{
			ID: queue.ItemName(string(c.Key), string(c.begun.ID)), Sequence: c.Head, Attempt: c.Attempts,
			Payload: c.begun.payload, Trace: string(c.begun.Trace), Age: duration(c.now - c.begun.written),
		}
	case s.Left > 0 && !s.Parked:
		now := c.now
		if !c.writes {
			now, _ = c.q.clock.between()
		}
		s.In = duration(c.Next - 1 - now)
	}
	return s
}

// line is the record of one key. Every step of the key writes it, or checks it, in a
// version that was read before. So the steps of a key happen one after the other.
//
// Times are milliseconds of the leader's clock, which a write learns afterwards, from the
// node that it has written. So a record may say that something was at the time of its own
// write, and readers put that in: see [line.resolve].
//
// Sequences are without gaps, but for items that an operator has dropped: those that have not
// ended are head to sequence.
type line struct {
	Key      []byte `json:"key"`
	Floor    int64  `json:"floor"` // the largest time of the writes before this one
	Sequence int64  `json:"seq"`   // the last that was given
	Head     int64  `json:"head"`  // of the first item that has not ended, or is dead and parked
	HeadID   []byte `json:"id,omitempty"`
	Attempts int    `json:"att,omitempty"` // of the first item

	Token   int64 `json:"token,omitempty"` // the largest that has come
	Running bool  `json:"run,omitempty"`   // Token has begun the first item
	Over    bool  `json:"over,omitempty"`  // Token is used up: it has found nothing to begin, or ended a run and begun no other
	Last    run   `json:"last,omitzero"`   // that Token ended last
	Begun   int64 `json:"begun,omitempty"` // when the run began
	Next    int64 `json:"next,omitempty"`  // the first millisecond in which the next run may start
	NextIn  int64 `json:"in,omitempty"`    // not before that long after this write, either; 0 says nothing

	Parked   bool  `json:"parked,omitempty"` // until Resume
	ParkedAt int64 `json:"since,omitempty"`
	DeadTo   int64 `json:"deadto,omitempty"` // the last item that a cascade has made dead
	DeadAt   int64 `json:"deadat,omitempty"`

	Worker  string `json:"worker,omitempty"` // the digest of who has claimed it
	Entry   string `json:"entry"`            // the name of its entry
	Pruned  int64  `json:"pruned"`           // the last item that was deleted
	PruneAt int64  `json:"prune"`            // when to look for more

	now int64 // the time of the write; not stored
}

// atWrite is the time of the write of the record that says so.
const atWrite = -1

// run names a run beside its token.
type run struct {
	Sequence int64 `json:"seq"`
	Attempt  int   `json:"att"`
}

// resolve puts in the time of the write. It never goes back within a key: a leader whose clock
// is behind waits.
func (l *line) resolve(written int64) {
	l.now = max(written, l.Floor)
	for _, t := range []*int64{&l.Begun, &l.ParkedAt, &l.DeadAt} {
		if *t == atWrite {
			*t = l.now
		}
	}
	if l.NextIn > 0 {
		l.Next, l.NextIn = max(l.Next, l.now+l.NextIn), 0
	}
	l.Floor = l.now
}

func parseLine(data []byte, written int64) (*line, error) {
	l := new(line)
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("%w: the record of a key cannot be read: %w", queue.ErrDamaged, err)
	}
	e, ok := parseEntry(l.Entry)
	if !ok || len(l.Key) == 0 || queue.Digest(string(l.Key)) != e.digest || l.Head < 1 || l.Head > l.Sequence+1 || l.Pruned >= l.Head {
		return nil, fmt.Errorf("%w: the record of a key is not one", queue.ErrDamaged)
	}
	l.resolve(written)
	return l, nil
}

func (l *line) bytes() []byte {
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // it has numbers and bytes
	}
	return b
}

// length is how many items have not ended, a parked one included.
func (l *line) length() int { return int(l.Sequence - l.Head + 1) }

// ahead is how many items are before that one, which may have ended.
func (l *line) ahead(sequence int64) int { return int(max(sequence-l.Head, 0)) }

// keeps reports whether an item that has ended is kept, at a time.
func (l *line) keeps(r queue.Rules, sequence, ended, now int64) bool {
	return sequence >= l.Head-int64(r.KeepCount) && now-ended < millis(r.KeepFor)
}

// item is what is stored of an item: a line of JSON, and the payload behind it. What has ended
// has no payload.
type item struct {
	ID       []byte `json:"id"`
	Trace    []byte `json:"trace,omitempty"`
	Floor    int64  `json:"floor"`
	State    string `json:"state,omitempty"` // done or dead; empty: it has not ended, or died in a cascade
	Attempts int    `json:"att,omitempty"`   // of one that has ended

	payload []byte
	written int64 // when it was appended, or has ended
}

const (
	done = "done"
	dead = "dead"
)

func parseItem(data []byte, stat *zk.Stat) (*item, error) {
	head, payload, ok := bytes.Cut(data, []byte("\n"))
	i := &item{payload: payload}
	if err := json.Unmarshal(head, i); err != nil || !ok || len(i.ID) == 0 {
		return nil, fmt.Errorf("%w: an item cannot be read", queue.ErrDamaged)
	}
	i.written = max(stat.Mtime, i.Floor)
	return i, nil
}

func (i *item) bytes() []byte {
	b, err := json.Marshal(i)
	if err != nil {
		panic(err) // it has numbers and bytes
	}
	return append(append(b, '\n'), i.payload...)
}
