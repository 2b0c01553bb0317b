package queue

import (
	"fmt"
	"time"
)

// Rules are what holds for all items of a queue.
type Rules struct {
	Spacing   time.Duration // from start to start of a key's runs; 0 is none
	Attempts  int           // runs of an item at most; 1 or more
	OnDead    OnDead        // what a dead item means for those behind it
	MaxLength int           // items of a key that have not ended; 1 or more
	KeepFor   time.Duration // for how long what has ended is kept; MinKeep or more
	KeepCount int           // ended items of a key that are kept; 1 or more
}

// Validate returns an error that says which rule cannot work, and what would be right.
func (r Rules) Validate() error {
	switch {
	case r.Spacing < 0 || r.Spacing > MaxTime:
		return fmt.Errorf("queue: Spacing is %v; use 0 to %v", r.Spacing, MaxTime)
	case r.Spacing > 0 && r.Spacing < time.Millisecond:
		return fmt.Errorf("queue: Spacing is %v; durations have units, as in 2*time.Second; the least is a millisecond", r.Spacing)
	case r.Attempts < 1 || r.Attempts > 1<<20:
		return fmt.Errorf("queue: Attempts is %d; use 1 to %d", r.Attempts, 1<<20)
	case r.OnDead > Cascade:
		return fmt.Errorf("queue: OnDead is %d; use Skip, Hold or Cascade", r.OnDead)
	case r.MaxLength < 1 || r.MaxLength > 1<<20:
		return fmt.Errorf("queue: MaxLength is %d; use 1 to %d", r.MaxLength, 1<<20)
	case r.KeepFor < MinKeep || r.KeepFor > MaxTime:
		return fmt.Errorf("queue: KeepFor is %v; use %v to %v", r.KeepFor, MinKeep, MaxTime)
	case r.KeepCount < 1 || r.KeepCount > 1<<20:
		return fmt.Errorf("queue: KeepCount is %d; use 1 to %d", r.KeepCount, 1<<20)
	}
	return nil
}

// OnDead is what a dead item means for the items behind it.
type OnDead uint8

const (
	// Skip goes on with the next item.
	Skip OnDead = iota
	// Hold parks the key until an operator calls Resume.
	Hold
	// Cascade makes all items dead that are queued behind it at that time. What comes after them may
	// have to wait until the store has removed them, which takes steps if there are many: the key is due
	// meanwhile, and a Begin removes some of them and begins nothing.
	Cascade
)

// String is the name of the value.
func (o OnDead) String() string { return name(o, "skip", "hold", "cascade") }
