package protocol

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// MaxEnrol is the longest that a place in the queue lasts without a
	// refresh.
	MaxEnrol = 3 * time.Second

	// Linger is how long at least a lock's hash stays at the server after the
	// end of its last lease, or the moment when that would have ended had it
	// not been given back; up to ten minutes more. It remembers the token and
	// the ended owners: tokens rise across backward steps of the server's clock
	// of up to that much.
	Linger = time.Hour
)

// Enrol returns how long a place in the queue lasts without a refresh, for
// leases of length ttl. It is refreshed every third of that.
func Enrol(ttl time.Duration) time.Duration { return min(MaxEnrol, ttl) }

// secret is an owner as an argument. It is written as its bytes, and whoever prints it
// sees none of them: a client's hooks may show what is sent.
type secret driver.Owner

func (s *secret) MarshalBinary() ([]byte, error) { return s[:], nil }

func (*secret) String() string { return "(owner)" }

// room is how many may hold a key together as far as one owner is concerned; 0 is
// any number. The least that anybody states counts for all.
func room(m driver.Mode, limit int) int64 {
	switch m {
	case driver.Exclusive:
		return 1
	case driver.Shared:
		return 0
	default:
		return int64(limit)
	}
}

// AcquireArgs are the arguments of [Acquire].
type AcquireArgs struct {
	Owner   driver.Owner
	Channel string // of the process's pushes; not empty

	// Length is how long a lease lasts that the reply grants, counted from
	// the script's run. A lease granted by a push lasts as long as the place
	// in the queue had left, at least Enrol/3.
	Length time.Duration
	// Enrol is how long the place in the queue lasts; see the func Enrol.
	Enrol time.Duration

	// Create allows the script to grant or enrol an owner it does not know.
	// Only an owner's first, unacknowledged request may carry it.
	Create bool
	// Wait allows the script to put the owner into the queue.
	Wait bool

	Mode  driver.Mode
	Limit int // of a Semaphore
}

// Args returns the script's arguments.
func (a AcquireArgs) Args() []any { return a.Append(nil) }

// Append appends the script's arguments, which point into a: it may change again
// when they have been sent. They are as few as say it, since each costs the server: a
// place's length and the room follow if they are not the usual.
func (a *AcquireArgs) Append(to []any) []any {
	var how any = ""
	switch {
	case a.Create && a.Wait:
		how = "cw"
	case a.Create:
		how = "c"
	case a.Wait:
		how = "w"
	}
	to = append(to, (*secret)(&a.Owner), &a.Channel, millis(a.Length), how)
	if room := room(a.Mode, a.Limit); room != 1 || a.Enrol != Enrol(a.Length) {
		to = append(to, millis(a.Enrol), room)
	}
	return to
}

// EndArgs are the arguments of [End].
type EndArgs struct {
	Owner driver.Owner

	// Keep leaves the key taken, by nobody, until that long after the lease
	// was granted. It counts only if this run of the script ended the lease.
	Keep time.Duration

	// Next, if not nil, is granted the key if this run of the script ended
	// Owner's lease and nobody waits, and joins the queue if somebody does.
	Next *Next
}

// Next is an owner that takes the place of another.
type Next struct {
	Owner   driver.Owner
	Channel string
	Length  time.Duration
	Enrol   time.Duration
	Mode    driver.Mode
	Limit   int
}

// Args returns the script's arguments.
func (a EndArgs) Args() []any { return a.Append(nil) }

// Append appends the script's arguments, as [AcquireArgs.Append] does.
func (a *EndArgs) Append(to []any) []any {
	to = append(to, (*secret)(&a.Owner), millis(a.Keep))
	if n := a.Next; n != nil {
		to = append(to, (*secret)(&n.Owner), &n.Channel, millis(n.Length), millis(n.Enrol), room(n.Mode, n.Limit))
	}
	return to
}

// RenewArgs are the arguments of [Renew].
type RenewArgs struct {
	Owner driver.Owner
	TTL   time.Duration // from the script's run

	// Share has an exclusive lease exclude no more readers from here on. It
	// changes nothing about a lease that is shared already.
	Share bool
}

// Args returns the script's arguments.
func (a RenewArgs) Args() []any {
	return []any{(*secret)(&a.Owner), millis(a.TTL), flag(a.Share)}
}

// OustArgs are the arguments of [Oust].
type OustArgs struct {
	UpTo int64 // the largest token whose lease ends
}

// Args returns the script's ARGV.
func (a OustArgs) Args() []any { return []any{a.UpTo} }

// millis rounds up: the server must never count less than its client.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
