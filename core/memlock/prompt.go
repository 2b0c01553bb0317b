package memlock

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.PromptAll = (*session)(nil)

// Begin takes a lease or a place in the queue. A store that does not answer is left
// to Acquire.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if s.silent() || check(&r) != nil {
		return g, false, nil
	}
	g, w, tell, err := s.ask(&r, s.d.instantOf(now))
	if err == errAgain {
		return g, false, nil
	}
	tell.deliver()
	return g, w == nil, err
}

// BeginAll begins one request after the other: none of them takes any time.
func (s *session) BeginAll(rs []driver.Request, now time.Time, begun []driver.Begun) {
	for i, r := range rs {
		b := &begun[i]
		b.Grant, b.Done, b.Err = s.Begin(r, now)
	}
}

// End ends a lease.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	switch {
	case s.silent():
		return false, nil
	case !s.end(e.ID, e.Keep, released, s.d.instantOf(now)):
		return true, driver.ErrNotHeld
	}
	return true, nil
}

func (s *session) silent() bool { return s.closed.Load() || s.d.fault.Load() != nil }
