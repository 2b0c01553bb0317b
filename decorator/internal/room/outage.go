package room

import (
	"sync"
	"sync/atomic"
	"time"
)

// quiet is how long at least passes between two outages that the log tells of.
const quiet = time.Minute

// Outage tells what the log says of a store that fails and answers again, for whoever uses it from many
// goroutines. The zero value is a store that answers.
type Outage struct {
	failing atomic.Bool

	mu   sync.Mutex
	said bool // that it fails
	at   time.Time
}

// Failed notes a failure, and reports whether the log is to say so: not while it has said so, and not of a
// store that comes and goes within a minute.
func (o *Outage) Failed() bool {
	if o.failing.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.failing.Swap(true) || !o.at.IsZero() && now.Sub(o.at) < quiet {
		return false
	}
	o.said, o.at = true, now
	return true
}

// Answered notes an answer, and reports whether the log is to say so: after what it has said of a failure.
func (o *Outage) Answered() bool {
	if !o.failing.Load() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	said := o.failing.Swap(false) && o.said
	o.said = false
	return said
}
