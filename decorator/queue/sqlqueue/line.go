package sqlqueue

import (
	"database/sql"
	"math"

	"github.com/lockaround/lockaround/decorator/queue"
)

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
