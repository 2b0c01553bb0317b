package manager

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// What becomes of a lease of this process is decided here and nowhere else: who holds it
// next, who joins those who hold it, whether it is kept although nobody holds, and when other
// processes have their turn.

const (
	// As soon as another process waits, this one hands the key on to its own
	// callers this often and for this long at most.
	turnHolds = 128
	turnTime  = 5 * time.Millisecond

	// staleAfter is how long the store's word that nobody else waits is taken
	// for true: a message that somebody does can be lost.
	staleAfter = time.Second
)

// step is what becomes of a lease next.
type step uint8

const (
	stepStay    step = iota // nothing changes
	stepServe               // the first waiter holds on it, and with it all that may share it
	stepRefresh             // it is renewed, and decided on again
	stepReplace             // it ends, and the next one is asked for in the same request
	stepReturn              // it ends
	stepLinger              // it is kept for who comes next
	stepClose               // those who hold go on, and nobody joins them
)

// situation is all that decide knows of a lease.
type situation struct {
	next *Terms // of the first waiter; nil if nobody waits
	mode driver.Mode
	left time.Duration // of the lease

	held      bool // somebody holds on it
	fresh     bool // nobody has held on it yet
	spent     bool // its block of tokens is at its end
	contended bool // another process is known to wait
	turnOver  bool // and this one has had its turn
	stale     bool // the word that nobody waits may be wrong by now
	lowered   bool // from an exclusive lease to a share
	closed    bool // to those who would join
	asking    bool // the store is being asked for another lease
	closing   bool // the manager is
	room      bool // for a lease that nobody holds

	minHold, linger time.Duration // of the hold that has just ended

	renewed bool // a renewal was just tried
	failed  bool // and did not succeed
}

// decide returns the next step. It changes nothing.
func (s *situation) decide() step {
	if s.held {
		return s.join()
	}
	switch {
	case s.next == nil && s.mayLinger():
		return stepLinger
	case s.next == nil, s.closing, s.minHold > 0:
		return stepReturn
	case s.renewed && !s.failed && s.left >= s.next.least() && !s.usedUp():
		return stepServe
	case s.renewed, !s.fresh && (s.lowered || s.mode == driver.Shared || s.usedUp() || s.left <= 0):
		if s.asking {
			return stepReturn
		}
		return stepReplace
	case !s.fresh && !s.contended && s.stale, s.left < s.next.floor():
		return stepRefresh
	}
	return stepServe
}

// join decides whether the first waiter holds beside others.
func (s *situation) join() step {
	switch {
	case s.next == nil:
		return stepStay
	case s.renewed && (s.failed || s.left < s.next.least()):
		return stepClose // those who wait ask for a share of their own
	case s.contended, !s.sharable():
		return stepStay
	case s.renewed:
		return stepServe
	case s.stale, s.left < s.next.floor():
		return stepRefresh
	}
	return stepServe
}

// follows reports whether the first waiter holds together with one who has just begun to.
// Whoever has waited for the grant comes in with it, also if other processes wait.
func (s *situation) follows() bool {
	return s.next != nil && s.sharable() && (s.fresh || !s.contended) && s.left >= s.next.floor()
}

// sharable reports whether the lease is a share that the first waiter may have a part in. A
// MinHold counts from a grant, and needs one of its own.
func (s *situation) sharable() bool {
	return s.mode == driver.Shared && !s.closed && !s.spent && s.next.MinHold == 0
}

// usedUp reports whether the next hold needs a grant of its own: its MinHold counts
// from that, the block of tokens is at its end, or others have waited enough.
func (s *situation) usedUp() bool { return !s.fresh && (s.next.MinHold > 0 || s.spent || s.turnOver) }

// mayLinger reports whether the process keeps a lease that nobody holds.
func (s *situation) mayLinger() bool {
	return s.minHold == 0 && s.linger > 0 && s.room && !s.contended && !s.lowered && !s.spent && s.left > 0
}

// floor is the least that must remain of a lease for a hold to start on it.
func (t *Terms) floor() time.Duration {
	if t.NoRenew {
		return t.TTL - t.TTL/10 - driver.Margin(t.TTL)
	}
	return t.least()
}

// least is what must remain right after a renewal, which cannot bring more.
func (t *Terms) least() time.Duration { return min(3*time.Second, t.TTL) / 4 }
