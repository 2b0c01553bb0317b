package manager

import "time"

// instant is a time by the process's clock in a third of the space of a time.Time, for
// what every lease has several of. The zero value is the earliest.
//
// It goes by the monotonic clock alone, unlike a deadline, whose remaining time is
// what the less favourable of two clocks says: see driver.Remaining.
type instant time.Duration

// epoch is before every instant, also by the clocks of simulations.
var epoch = time.Now().Add(-100 * longest)

// millis is a short time, in ms.
type millis int32

func inMillis(d time.Duration) millis { return millis(d / time.Millisecond) }

func (m millis) duration() time.Duration { return time.Duration(m) * time.Millisecond }

func at(t time.Time) instant { return instant(t.Sub(epoch)) }

func (m instant) add(d time.Duration) instant { return m + instant(d) }

func (m instant) since(earlier instant) time.Duration { return time.Duration(m - earlier) }
