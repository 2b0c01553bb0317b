package serial

import (
	"fmt"
	"time"

	"github.com/lockaround/lockaround/decorator/codec"
	"github.com/lockaround/lockaround/decorator/queue"
)

// Policy says how the queue of a [Func] runs. All processes that use a queue
// should have the same. The zero value works.
type Policy struct {
	// Spacing is the least time from the start of a key's run to the next start, by the
	// store's clock. Zero is none; otherwise a millisecond or more.
	Spacing time.Duration

	// Attempts is how often an item runs at most. A run counts when it is begun, so that one
	// which ends its process counts as well. Zero is [DefaultAttempts].
	Attempts int

	// Backoff is the pause after a failure.
	Backoff Backoff

	// OnDead says what a dead item means for those behind it: [Skip], the zero value, [Hold]
	// or [Cascade].
	OnDead queue.OnDead

	// MaxLength is how many items of a key may be queued, the one that runs included. One
	// more is a [queue.ErrFull]. Zero is 1000; at most 1<<20.
	MaxLength int

	// MaxBytes is the largest item, encoded. Zero is 64 KiB; at most [queue.MaxPayload].
	MaxBytes int

	// KeepFor is how long the store remembers an item that has ended: for so long Status
	// tells of it, and its ID is known to Enqueue. Zero is 24 h; at least [queue.MinKeep].
	KeepFor time.Duration

	// KeepCount is how many items of a key that have ended the store remembers at most. Zero
	// is 1000; at most 1<<20.
	KeepCount int

	// Workers is how many keys this process runs at a time. As many more may wait for locks that
	// others have. Zero is [DefaultWorkers].
	Workers int

	// Codec encodes the items. Nil is [codec.JSON].
	Codec codec.Codec
}

// Backoff is the pause before a failed item runs again: Least after the first failure, twice as
// long after each one more, at most Most, and up to a quarter less at random.
type Backoff struct {
	Least time.Duration // zero is a second; otherwise a millisecond or more
	Most  time.Duration // zero is a minute, or Least if that is more
}

// What a dead item means for those behind it.
const (
	// Skip goes on with the next item.
	Skip = queue.Skip
	// Hold parks the key, until an operator calls [Func.Resume].
	Hold = queue.Hold
	// Cascade makes all items dead that are queued behind it at that time.
	Cascade = queue.Cascade
)

const (
	// DefaultAttempts is the Attempts of a [Policy] that states none.
	DefaultAttempts = 10
	// DefaultWorkers is the Workers of a [Policy] that states none.
	DefaultWorkers = 16
)

// fill checks s and fills in the defaults.
func (s *Policy) fill() error {
	for _, zero := range []struct {
		n     *int
		means int
	}{{&s.Attempts, DefaultAttempts}, {&s.MaxLength, 1000}, {&s.MaxBytes, 64 << 10}, {&s.KeepCount, 1000}, {&s.Workers, DefaultWorkers}} {
		if *zero.n == 0 {
			*zero.n = zero.means
		}
	}
	if s.KeepFor == 0 {
		s.KeepFor = 24 * time.Hour
	}
	if s.Backoff.Least == 0 {
		s.Backoff.Least = time.Second
	}
	if s.Backoff.Most == 0 {
		s.Backoff.Most = max(time.Minute, s.Backoff.Least)
	}
	if s.Codec == nil {
		s.Codec = codec.JSON
	}
	switch {
	case s.Backoff.Least < time.Millisecond || s.Backoff.Most < s.Backoff.Least || s.Backoff.Most > queue.MaxTime:
		return fmt.Errorf("serial.Policy.Backoff is from %v to %v; the first is at least 1ms, and at most the second, which is at most %v", s.Backoff.Least, s.Backoff.Most, queue.MaxTime)
	case s.MaxBytes < 0 || s.MaxBytes > queue.MaxPayload:
		return fmt.Errorf("serial.Policy.MaxBytes is %d; use 1 to %d, or 0 for 64 KiB", s.MaxBytes, queue.MaxPayload)
	case s.Workers < 0 || s.Workers > 1<<16:
		return fmt.Errorf("serial.Policy.Workers is %d; use 1 to %d, or 0 for %d", s.Workers, 1<<16, DefaultWorkers)
	}
	if err := s.rules().Validate(); err != nil {
		return fmt.Errorf("serial.Policy: %w", err)
	}
	return nil
}

func (s *Policy) rules() queue.Rules {
	return queue.Rules{
		Spacing: s.Spacing, Attempts: s.Attempts, OnDead: s.OnDead,
		MaxLength: s.MaxLength, KeepFor: s.KeepFor, KeepCount: s.KeepCount,
	}
}
