package zkqueue

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

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
