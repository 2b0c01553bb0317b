package protocol

import (
	"strconv"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// MaxPlaceTTL is the longest time that a place in the queue lasts without a refresh.
	MaxPlaceTTL = 3 * time.Second

	// Linger is how long a lock's hash stays at the server after a lease that nobody has ended,
	// and how long it remembers owners that were given up.
	Linger = 10 * time.Minute
)

// PlaceTTL returns how long a place in the queue lasts without a refresh, for
// leases of length ttl. It is refreshed every third of that.
func PlaceTTL(ttl time.Duration) time.Duration { return min(MaxPlaceTTL, ttl) }

// ownerArg is an owner as an argument. It is sent as its bytes, and prints without them: a
// client's hooks may print what is sent, and owners are secret.
type ownerArg driver.Owner

func (s *ownerArg) MarshalBinary() ([]byte, error) { return s[:], nil }

func (*ownerArg) String() string { return "(owner)" }

// valueArg is a lease as an argument, which prints like an owner.
type valueArg []byte

func (v valueArg) MarshalBinary() ([]byte, error) { return v, nil }

func (valueArg) String() string { return "(lease)" }

// maxHolders returns how many owners may hold a key at once if one of them has this mode; 0 is
// any number. If several hold the key, the smallest number counts. The scripts call it room.
func maxHolders(m driver.Mode, limit int) int64 {
	switch m {
	case driver.Exclusive:
		return 1
	case driver.Shared:
		return 0
	default:
		return int64(limit)
	}
}

// TakeArgs are the arguments of [Take]: a lease that nobody shares.
type TakeArgs struct {
	Owner   driver.Owner
	Channel string        // of the process's pushes; not empty
	Length  time.Duration // of the lease, from the script's run
	Trace   *driver.Trace // stored with the lease if it is not nil
}

// Args returns the script's arguments: what the key becomes, and its length in ms.
func (a TakeArgs) Args() []any { return a.Append(nil) }

// Append appends the script's arguments.
func (a *TakeArgs) Append(to []any) []any { return append(to, a.Value(), millis(a.Length)) }

// Value is what the key becomes.
func (a *TakeArgs) Value() any {
	v := make(valueArg, 0, 128)
	v = append(v, a.Owner[:]...)
	v = append(v, "1:0:0:"...)
	v = strconv.AppendInt(v, millis(a.Length), 10)
	v = append(v, ':')
	v = strconv.AppendInt(v, int64(len(a.Channel)), 10)
	v = append(v, ':')
	v = append(v, a.Channel...)
	if a.Trace != nil {
		v = a.Trace.Append(v)
	}
	return v
}

// AcquireArgs are the arguments of [Acquire].
type AcquireArgs struct {
	Owner   driver.Owner
	Channel string // of the process's pushes; not empty

	// Length is how long a lease lasts after the script's run, if the reply grants it.
	// A lease granted by a push lasts for the rest of the place's time in the queue, and
	// PlaceTTL/3 at least.
	Length time.Duration
	// PlaceTTL is how long the place in the queue lasts; see the func PlaceTTL.
	PlaceTTL time.Duration

	// Create allows the script to grant or queue an owner that it does not know.
	// Only an owner's first, unacknowledged request may carry it.
	Create bool
	// Wait allows the script to put the owner into the queue.
	Wait bool
	// MaxWaiting, if not 0, is how many places there may be in the queue before a new one. It counts only with
	// Create and Wait.
	MaxWaiting int

	Mode  driver.Mode
	Limit int // of a Semaphore

	// Trace, if not nil, is stored with the lease. It counts only with Create.
	Trace *driver.Trace
}

// Args returns the script's arguments.
func (a AcquireArgs) Args() []any { return a.Append(nil) }

// Append appends the script's arguments. They point into a, which must not change until they
// were sent. Each argument costs the server time, so that PlaceTTL and the number of holders
// are left out if they are the usual ones.
func (a *AcquireArgs) Append(to []any) []any {
	var how any = ""
	switch {
	case a.Create && a.Wait && a.MaxWaiting > 0:
		how = "cw" + strconv.Itoa(a.MaxWaiting)
	case a.Create && a.Wait:
		how = "cw"
	case a.Create:
		how = "c"
	case a.Wait:
		how = "w"
	}
	to = append(to, (*ownerArg)(&a.Owner), &a.Channel, millis(a.Length), how)
	if room := maxHolders(a.Mode, a.Limit); room != 1 || a.PlaceTTL != PlaceTTL(a.Length) {
		to = append(to, millis(a.PlaceTTL), room)
	}
	if a.Trace != nil && a.Create {
		to = append(to, string(a.Trace.Append(nil)))
	}
	return to
}

// EndArgs are the arguments of [End].
type EndArgs struct {
	Owner driver.Owner

	// Bury refuses all later requests of the owner, for [Linger] at least. It is needed if one
	// may be under way, or a copy of one. The latest four owners of a key stay buried.
	Bury bool

	// Keep leaves the key taken, without a holder, until that long after the lease
	// was granted. It counts only if this run of the script ended the lease.
	Keep time.Duration

	// Next, if not nil, is granted the key if this run of the script ended
	// Owner's lease and nobody waits, and joins the queue if somebody does.
	Next *Next
}

// Next is an owner that asks for the key when another one ends.
type Next struct {
	Owner    driver.Owner
	Channel  string
	Length   time.Duration
	PlaceTTL time.Duration
	Mode     driver.Mode
	Limit    int
	Trace    *driver.Trace
}

// Args returns the script's arguments.
func (a EndArgs) Args() []any { return a.Append(nil) }

// Append appends the script's arguments, as [AcquireArgs.Append] does.
func (a *EndArgs) Append(to []any) []any {
	var how any = ""
	if a.Bury {
		how = "b"
	}
	to = append(to, (*ownerArg)(&a.Owner), how, millis(a.Keep))
	if n := a.Next; n != nil {
		to = append(to, (*ownerArg)(&n.Owner), &n.Channel, millis(n.Length), millis(n.PlaceTTL), maxHolders(n.Mode, n.Limit))
		if n.Trace != nil {
			to = append(to, string(n.Trace.Append(nil)))
		}
	}
	return to
}

// RenewArgs are the arguments of [Renew].
type RenewArgs struct {
	Owner driver.Owner
	Token int64         // of the owner's lease
	TTL   time.Duration // from the script's run

	// Share turns an exclusive lease into a shared one. It does nothing to a lease that is
	// shared already.
	Share bool
}

// Args returns the script's arguments.
func (a RenewArgs) Args() []any {
	return []any{(*ownerArg)(&a.Owner), millis(a.TTL), flag(a.Share), a.Token}
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
