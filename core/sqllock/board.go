package sqllock

import (
	"bytes"
	"math"
	"slices"

	"github.com/lockaround/lockaround/core/driver"
)

// state is what a claim is at.
type state int16

const (
	waits state = iota // has a place in the queue
	holds              // has a lease
	kept               // has released it, and the key stays taken for Ending.Keep
)

// noTurn is the turn of a claim that waits no more: behind all who do.
const noTurn = math.MaxInt64

// remembered is how many of the latest ended owners a key knows.
const remembered = 8

// name is the random name of a session.
type name [16]byte

// claim is one owner's row of a key. Times are in microseconds.
type claim struct {
	owner   driver.Owner
	state   state
	turn    int64 // its place in the queue; noTurn if it does not wait
	room    int32 // how many may hold together; 0 is any number
	token   int64
	granted int64
	expires int64 // of the lease, or of the place unless it is refreshed
	ttl     int64 // the longest that expires was ever set ahead
	session name
	listens bool // the session hears notifications
}

// board is the state of a key, as it is while its row is locked.
type board struct {
	now    int64
	token  int64 // the latest of the claims that have ended
	floor  int64 // no token may be this or less
	ousted int64 // the largest token that was taken from its holder
	asked  int64 // when somebody last asked who would not wait
	keep   int64 // the row stays until then
	ended  []byte
	claims []claim // the queue in its order, and then those who hold
}

// room is how many may hold a key together with such a request.
func room(m driver.Mode, limit int) int32 {
	switch m {
	case driver.Exclusive:
		return 1
	case driver.Shared:
		return 0
	}
	return int32(min(limit, math.MaxInt32))
}

// mode is room's inverse.
func mode(room int32) (m driver.Mode, limit int) {
	switch room {
	case 0:
		return driver.Shared, 0
	case 1:
		return driver.Exclusive, 0
	}
	return driver.Semaphore, int(room)
}

// order brings the claims into theirs.
func (b *board) order() {
	slices.SortFunc(b.claims, func(x, y claim) int {
		switch {
		case x.turn != y.turn && x.turn < y.turn:
			return -1
		case x.turn != y.turn:
			return 1
		case x.token != y.token && x.token < y.token:
			return -1
		case x.token != y.token:
			return 1
		}
		return bytes.Compare(x.owner[:], y.owner[:])
	})
}

// find returns the claim of an owner, or nil. It is valid until claims change.
func (b *board) find(o driver.Owner) *claim {
	for i := range b.claims {
		if b.claims[i].owner == o {
			return &b.claims[i]
		}
	}
	return nil
}

// waiting is how many have a place in the queue.
func (b *board) waiting() int {
	n := 0
	for i := range b.claims {
		if b.claims[i].state == waits {
			n++
		}
	}
	return n
}

// head returns the first of the queue, or nil.
func (b *board) head() *claim {
	if len(b.claims) > 0 && b.claims[0].state == waits {
		return &b.claims[0]
	}
	return nil
}

// lastTurn is the turn of the last of the queue.
func (b *board) lastTurn() int64 {
	var last int64
	for i := range b.claims {
		if c := &b.claims[i]; c.state == waits {
			last = max(last, c.turn)
		}
	}
	return last
}

// fits reports whether one more may hold, who lets room hold together: if fewer hold
// than that, and than each of those who hold lets.
func (b *board) fits(room int32) bool {
	n := int32(len(b.claims) - b.waiting())
	for i := range b.claims {
		if c := &b.claims[i]; c.state != waits && c.room != 0 && n >= c.room {
			return false
		}
	}
	return room == 0 || n < room
}

// firstEnd is when the first of the leases ends, or 0 if there is none.
func (b *board) firstEnd() int64 {
	var end int64
	for i := range b.claims {
		if c := &b.claims[i]; c.state != waits && (end == 0 || c.expires < end) {
			end = c.expires
		}
	}
	return end
}

// latest is the token of the key's latest grant; 0 if none is known.
func (b *board) latest() int64 {
	t := b.token
	for i := range b.claims {
		t = max(t, b.claims[i].token)
	}
	return t
}

// next is the token of a grant: the server's time in microseconds, or one more than the
// latest token if that is larger, by which it stays larger than all that a row forgot
// which is gone meanwhile.
func (b *board) next() int64 { return max(b.now, b.latest()+1, b.floor+1) }

// isEnded reports whether an owner is one of those that ended latest.
func (b *board) isEnded(o driver.Owner) bool {
	for at := 0; at+len(o) <= len(b.ended); at += len(o) {
		if bytes.Equal(b.ended[at:at+len(o)], o[:]) {
			return true
		}
	}
	return false
}

// bury notes that an owner has ended.
func (b *board) bury(o driver.Owner) {
	if b.isEnded(o) {
		return
	}
	ended := append(slices.Clone(o[:]), b.ended...)
	b.ended = ended[:min(len(ended), remembered*len(o))]
}

// part removes a claim from the board, not from the table. What the row must remember of
// it goes to the board.
func (b *board) part(o driver.Owner) {
	i := slices.IndexFunc(b.claims, func(c claim) bool { return c.owner == o })
	if i < 0 {
		return
	}
	c := b.claims[i]
	b.token = max(b.token, c.token)
	b.keep = max(b.keep, c.expires, b.now+linger)
	b.bury(o)
	b.claims = slices.Delete(b.claims, i, i+1)
}
