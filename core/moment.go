package core

import "time"

// moment is a time by the process's clock in a third of the space of a time.Time, for
// what every lease has several of. The zero value is the earliest.
//
// It goes by the monotonic clock alone, unlike a deadline, whose remaining time is
// what the less favourable of two clocks says: see driver.Remaining.
type moment time.Duration

// epoch is before every moment, also by the clocks of simulations.
var epoch = time.Now().Add(-100 * MaxTTL)

func at(t time.Time) moment { return moment(t.Sub(epoch)) }

func (m moment) add(d time.Duration) moment { return m + moment(d) }

func (m moment) since(earlier moment) time.Duration { return time.Duration(m - earlier) }
