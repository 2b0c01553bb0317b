package zkqueue

import (
	"sync"
	"time"
)

// clock estimates the leader's clock. Each write says what it was, between when the write
// was sent and when its answer came: so there is a least and a largest difference from this
// process's clock. If the two cross, the leader's clock was set, or another server leads, and
// the last write alone counts.
//
// What a run waits for is not decided by it: see [change.begin].
type clock struct {
	epoch time.Time

	mu    sync.Mutex
	known bool
	asked time.Duration // when the last write was answered, after epoch
	least time.Duration // leader's clock less this one's, at least
	most  time.Duration
}

// fresh is for how long an estimate is good enough.
const fresh = time.Minute

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn notes that a write that was sent then, and answered just now, has that time.
func (c *clock) learn(sent time.Time, written int64) {
	at := time.Duration(written) * time.Millisecond
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Since(c.epoch)
	least, most := at-c.asked, at+time.Millisecond-sent.Sub(c.epoch)
	if c.known && least <= c.most && most >= c.least {
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
}

// isFresh reports whether a write was answered not long ago.
func (c *clock) isFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known && time.Since(c.epoch)-c.asked < fresh
}

// between returns the least and the largest time that it may be, in milliseconds.
func (c *clock) between() (least, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := time.Since(c.epoch)
	return (here + c.least).Milliseconds(), millis(here + c.most)
}

// millis rounds up.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func duration(ms int64) time.Duration { return time.Duration(max(ms, 0)) * time.Millisecond }
