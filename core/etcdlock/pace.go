package etcdlock

import (
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// pace is how quickly etcd answers. The zero value is ready for use.
type pace struct {
	mu      sync.Mutex
	quickAt time.Time // when the latest answer came, if that was quick
}

// note notes an attempt that took so long. failed says that it had no answer.
func (p *pace) note(now time.Time, took time.Duration, failed bool) {
	if failed || took > driver.Promptness/2 {
		now = time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quickAt = now
}

// quick reports whether etcd has answered within the last second, and quickly.
func (p *pace) quick(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.quickAt.IsZero() && now.Sub(p.quickAt) < time.Second
}
