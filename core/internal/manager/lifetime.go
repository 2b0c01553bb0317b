package manager

import (
	"sync"
	"sync/atomic"
)

// lifetime is how far a manager is on its way from open to closed, and how many
// calls wait or hold.
type lifetime struct {
	calls atomic.Int64
	stage atomic.Int32 // a stage; changed under mu

	mu      sync.Mutex
	refuses chan struct{} // closed when no more callers are taken; nil until somebody asks
	idle    chan struct{} // closed when draining and no call is left
	closed  chan struct{} // closed when Close has finished
}

type stage = int32

const (
	open stage = iota
	draining
	closed
)

// enter counts a call in, unless the manager takes no more. again says that it is part of a call that
// was counted in itself, and still is: that is taken until the manager is closed.
func (l *lifetime) enter(again bool) bool {
	l.calls.Add(1) // before the look: whoever sets the stage looks at calls after that
	if s := l.stage.Load(); s == open || again && s == draining {
		return true
	}
	l.leave()
	return false
}

// leave counts a call out, when it gave up or its hold was released.
func (l *lifetime) leave() {
	if l.calls.Add(-1) > 0 || l.isOpen() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil && l.calls.Load() == 0 {
		close(l.idle)
		l.idle = nil
	}
}

// closing returns a channel that is closed once no more callers are taken.
func (l *lifetime) closing() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses == nil {
		l.refuses = make(chan struct{})
		if !l.isOpen() {
			close(l.refuses)
		}
	}
	return l.refuses
}

// advance goes on to a later stage. l.mu is held.
func (l *lifetime) advance(to stage) {
	if l.isOpen() && l.refuses != nil {
		close(l.refuses)
	}
	l.stage.Store(to)
}

func (l *lifetime) isOpen() bool { return l.stage.Load() == open }

func (l *lifetime) isClosed() bool { return l.stage.Load() == closed }
