// Package hiccups tells the lateness of a machine from that of what is tested on it.
package hiccups

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// steps is how many sleepers, in this process and in others, one call may wait for in
// turn: each may be woken late. A figure is taken on a quiet machine, where hardly one is.
func steps(t testing.TB) time.Duration {
	if counts.Full(t) {
		return 1
	}
	return 20
}

// Meter measures by how much this machine oversleeps. It is safe for concurrent use.
type Meter struct {
	steps time.Duration
	worst atomic.Int64 // nanoseconds
	done  chan struct{}
	once  sync.Once
}

// Measure measures until Stop is called.
func Measure(t testing.TB) *Meter {
	m := &Meter{steps: steps(t), done: make(chan struct{})}
	go func() {
		const nap = time.Millisecond
		for {
			began := time.Now()
			select {
			case <-m.done:
				return
			case <-time.After(nap):
			}
			m.worst.Store(max(m.worst.Load(), int64(time.Since(began)-nap)))
		}
	}()
	return m
}

// Start measures until the test ends.
func Start(t testing.TB) *Meter {
	m := Measure(t)
	t.Cleanup(m.Stop)
	return m
}

// Stop ends the measurement. Stopping it again does nothing.
func (m *Meter) Stop() { m.once.Do(func() { close(m.done) }) }

// Worst returns the most by which a sleeper has been late so far.
func (m *Meter) Worst() time.Duration { return time.Duration(m.worst.Load()) }

// Allow returns what a bound is on this machine, as far as it is known by now: the bound
// itself, and what a call may lose by late wake-ups.
func (m *Meter) Allow(bound time.Duration) time.Duration { return bound + m.steps*m.Worst() }
