package observe

import (
	"time"

	"github.com/lockaround/lockaround/core/internal/queue"
)

const (
	bucketLength = 5 * time.Second
	bucketCount  = 60

	// Window is how far back counts go.
	Window = bucketCount * bucketLength

	// rateBuckets is how many of the latest buckets the rate is of.
	rateBuckets = int64(time.Minute / bucketLength)

	kinds = int(queue.EventTimedOut) + 1
)

// Counts are how often something happened.
type Counts struct {
	Taken, HandedOff, Released, Renewed, Lost, Refused, TimedOut int64

	Rate float64 // Taken in the last minute, each second
}

// Bucket is about those who got a lock, or gave up, in a short time.
type Bucket struct {
	Start   time.Time
	Length  time.Duration
	Callers int64
	Total   time.Duration
	Longest time.Duration
}

// delta is what happened in some time: counts by queue.Kind, and what those waited who got the lock
// or gave up.
type delta struct {
	counts  [kinds]uint32
	total   time.Duration
	longest time.Duration
}

// deltaOf is one event.
func deltaOf(e queue.Event) (d delta) {
	d.counts[e.Kind] = 1
	d.total, d.longest = e.Waited, e.Waited
	return d
}

func (d *delta) add(more delta) {
	for i, n := range more.counts {
		d.counts[i] += n
	}
	d.total = min(d.total+more.total, 100*longest) // reports are no reason to overflow
	d.longest = max(d.longest, more.longest)
}

// callers is how many callers got the lock or gave up.
func (d *delta) callers() int64 {
	return int64(d.counts[queue.EventTaken]) + int64(d.counts[queue.EventHandedOn]) + int64(d.counts[queue.EventRefused]) + int64(d.counts[queue.EventTimedOut])
}

// events is how much happened.
func (d *delta) events() (n int64) {
	for _, c := range d.counts {
		n += int64(c)
	}
	return n
}

// tally has the latest deltas, by their time. The zero value is empty.
type tally struct {
	newest  int64 // number of the newest bucket that is in use
	buckets [bucketCount]delta
}

// numberOf numbers the buckets of all times.
func numberOf(now time.Time) int64 { return now.UnixNano() / int64(bucketLength) }

// advance empties the buckets that are too old to be used at a time.
func (t *tally) advance(number int64) {
	for n := max(t.newest+1, number-bucketCount+1); n <= number; n++ {
		t.buckets[n%bucketCount] = delta{}
	}
	t.newest = max(t.newest, number)
}

func (t *tally) add(number int64, d delta) {
	t.advance(number)
	t.buckets[number%bucketCount].add(d)
}

// sum returns all that happened in the window that ends with a bucket.
func (t *tally) sum(number int64) (d delta, lately uint32) {
	t.advance(number)
	for i := range t.buckets {
		d.add(t.buckets[i])
	}
	for n := number - rateBuckets + 1; n <= number; n++ {
		b := &t.buckets[n%bucketCount]
		lately += b.counts[queue.EventTaken] + b.counts[queue.EventHandedOn]
	}
	return d, lately
}

// busy is how much happened in the window that ends with a bucket.
func (t *tally) busy(number int64) int64 {
	d, _ := t.sum(number)
	return d.events()
}

// counts returns the counts of the window that ends at a time and has begun at since.
func (t *tally) counts(since, now time.Time) Counts {
	d, lately := t.sum(numberOf(now))
	n := func(k queue.Kind) int64 { return int64(d.counts[k]) }
	over := min(time.Minute, max(now.Sub(since), time.Second))
	return Counts{
		Taken: n(queue.EventTaken) + n(queue.EventHandedOn), HandedOff: n(queue.EventHandedOn), Released: n(queue.EventReleased),
		Renewed: n(queue.EventRenewed), Lost: n(queue.EventLost), Refused: n(queue.EventRefused), TimedOut: n(queue.EventTimedOut),
		Rate: float64(lately) / over.Seconds(),
	}
}

// waits returns the buckets since a time, the oldest first.
func (t *tally) waits(since, now time.Time) []Bucket {
	last := numberOf(now)
	first := max(numberOf(since), last-bucketCount+1)
	t.advance(last)
	var all []Bucket
	for n := first; n <= last; n++ {
		b := &t.buckets[n%bucketCount]
		all = append(all, Bucket{time.Unix(0, n*int64(bucketLength)), bucketLength, b.callers(), b.total, b.longest})
	}
	return all
}
