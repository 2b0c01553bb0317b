package observe

import (
	"time"

	"github.com/lockaround/lockaround/core/internal/manager"
)

const (
	// BucketLength is how long a bucket is.
	BucketLength = 5 * time.Second
	bucketCount  = 60

	// RateOf is the time that a rate is of.
	RateOf = time.Minute

	// Window is how far back counts go.
	Window = bucketCount * BucketLength

	// rateBuckets is how many of the latest buckets a rate is of.
	rateBuckets = int64(RateOf / BucketLength)

	// Kinds is how many kinds of event there are.
	Kinds = int(manager.EventUnavailable) + 1
)

// Delta is what happened in some time: counts by manager.Kind, and what those waited who got the lock
// or gave up.
type Delta struct {
	Counts  [Kinds]uint32
	Total   time.Duration
	Longest time.Duration
}

// deltaOf is one event.
func deltaOf(e manager.Event) (d Delta) {
	d.Counts[e.Kind] = 1
	d.Total, d.Longest = e.Waited, e.Waited
	return d
}

func (d *Delta) add(more Delta) {
	for i, n := range more.Counts {
		d.Counts[i] += n
	}
	d.Total = min(d.Total+more.Total, 100*Longest) // reports are no reason to overflow
	d.Longest = max(d.Longest, more.Longest)
}

// Callers is how many callers got the lock or gave up.
func (d *Delta) Callers() int64 {
	return int64(d.Counts[manager.EventTaken]) + int64(d.Counts[manager.EventHandedOn]) + int64(d.Counts[manager.EventRefused]) + int64(d.Counts[manager.EventTimedOut]) + int64(d.Counts[manager.EventUnavailable])
}

// events is how much happened.
func (d *Delta) events() (n int64) {
	for _, c := range d.Counts {
		n += int64(c)
	}
	return n
}

// tally has the latest deltas, by their time. The zero value is empty.
type tally struct {
	newest  int64 // number of the newest bucket that is in use
	buckets [bucketCount]Delta
}

// NumberOf numbers the buckets of all times.
func NumberOf(now time.Time) int64 { return now.UnixNano() / int64(BucketLength) }

// advance empties the buckets that are too old to be used at a time.
func (t *tally) advance(number int64) {
	for n := max(t.newest+1, number-bucketCount+1); n <= number; n++ {
		t.buckets[n%bucketCount] = Delta{}
	}
	t.newest = max(t.newest, number)
}

func (t *tally) Add(number int64, d Delta) {
	t.advance(number)
	t.buckets[number%bucketCount].add(d)
}

// Sum returns all that happened in the window that ends with a bucket.
func (t *tally) Sum(number int64) (d Delta, lately uint32) {
	t.advance(number)
	for i := range t.buckets {
		d.add(t.buckets[i])
	}
	for n := number - rateBuckets + 1; n <= number; n++ {
		b := &t.buckets[n%bucketCount]
		lately += b.Counts[manager.EventTaken] + b.Counts[manager.EventHandedOn]
	}
	return d, lately
}

// Happened is how much happened in the window that ends with a bucket.
func (t *tally) Happened(number int64) int64 {
	d, _ := t.Sum(number)
	return d.events()
}

// Each calls f with the buckets since a time, the oldest first, and when each begins.
func (t *tally) Each(since, now time.Time, f func(start time.Time, d *Delta)) {
	last := NumberOf(now)
	first := max(NumberOf(since), last-bucketCount+1)
	t.advance(last)
	for n := first; n <= last; n++ {
		f(time.Unix(0, n*int64(BucketLength)), &t.buckets[n%bucketCount])
	}
}
