package drivertest

import (
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

// sink records what a session reports.
type sink struct {
	mu        sync.Mutex
	queued    map[driver.ID]chan struct{}
	contended map[driver.ID]chan bool
	lost      map[driver.ID]error
	holders   map[driver.ID]driver.Origin
	failures  map[driver.ID]error
}

func newSink() *sink {
	return &sink{
		queued:    make(map[driver.ID]chan struct{}),
		contended: make(map[driver.ID]chan bool),
		lost:      make(map[driver.ID]error),
		holders:   make(map[driver.ID]driver.Origin),
		failures:  make(map[driver.ID]error),
	}
}

// Waiting implements driver.Sink.
func (s *sink) Waiting(id driver.ID) {
	c := s.waiting(id)
	select {
	case c <- struct{}{}:
	default:
	}
}

// Contended implements driver.Sink.
func (s *sink) Contended(id driver.ID, waiting bool) {
	c := s.contention(id)
	select {
	case c <- waiting:
	default:
	}
}

// TakenBy implements driver.Follower.
func (s *sink) TakenBy(id driver.ID, holder driver.Origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holders[id] = holder
}

// takenBy returns who was reported to hold the key that id waits for.
func (s *sink) takenBy(id driver.ID) driver.Origin {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holders[id]
}

// Failed implements driver.Hearer.
func (s *sink) Failed(id driver.ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[id] = err
}

// failure returns what a try of the Acquire of id was last reported to have come to.
func (s *sink) failure(id driver.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failures[id]
}

// Lost implements driver.Sink.
func (s *sink) Lost(id driver.ID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[id] = cause
}

// waiting returns a channel that receives when id is reported as waiting.
func (s *sink) waiting(id driver.ID) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[id] == nil {
		s.queued[id] = make(chan struct{}, 1)
	}
	return s.queued[id]
}

// contention returns a channel that receives what is reported about id.
func (s *sink) contention(id driver.ID) chan bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.contended[id] == nil {
		s.contended[id] = make(chan bool, 64)
	}
	return s.contended[id]
}

// told reports whether the lease was reported as lost.
func (s *sink) told(id driver.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.lost[id]
	return ok
}

// losses returns how many leases were reported as lost.
func (s *sink) losses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}
