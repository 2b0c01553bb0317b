package driver

import (
	"math"
	"time"
)

// Deadline returns when a lease must be considered over by the process that
// holds it: sent, the time just before the request left, plus ttl, less a
// margin of 1% of ttl and 2 ms for clocks of slightly different rates. The
// result carries sent's monotonic reading.
func Deadline(sent time.Time, ttl time.Duration) time.Time {
	return sent.Add(ttl - Margin(ttl))
}

// Margin is how much sooner than its store a holder considers a lease of
// length ttl over.
func Margin(ttl time.Duration) time.Duration {
	return ttl/100 + 2*time.Millisecond
}

// Remaining returns how long it is from now to deadline, by the less
// favourable of the monotonic and the wall clock: the monotonic one stops while
// a machine is suspended. A negative result has passed.
func Remaining(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), wall(deadline, now))
}

// wall is the time between two times by the wall clock alone, which Time.Sub goes by
// only if it has to.
func wall(deadline, now time.Time) time.Duration {
	const far = math.MaxInt64 / int64(time.Second)
	s := deadline.Unix() - now.Unix()
	switch {
	case s >= far:
		return math.MaxInt64
	case s <= -far:
		return math.MinInt64
	}
	return time.Duration(s)*time.Second + time.Duration(deadline.Nanosecond()-now.Nanosecond())
}

// Later returns the later of two deadlines. A zero time is the earliest.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
