package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// stage is one process's part of a trial: what its callers use and what they report.
type stage struct {
	scenario Scenario
	process  Process
	number   int64 // of the process, from 1
	prefix   string
	pace     Pace
	witness  *witness
	meter    *server.Meter // in one of the processes, if the store is read

	callers  []caller
	watching atomic.Bool
	over     atomic.Int64 // Unix time in ns at which it ended; 0 as long as it has not
	busy     atomic.Int64 // callers that have not returned

	mu      sync.Mutex
	outcome Outcome
}

// caller is what one goroutine counts, on cache lines of its own.
type caller struct {
	sections atomic.Int64
	key      string
	slot     int // of the witness
	_        [96]byte
}

// enlist gives each caller its key.
func (s *stage) enlist() {
	s.callers = make([]caller, s.scenario.Callers)
	for i := range s.callers {
		s.callers[i].key = s.prefix
		if s.scenario.Own {
			s.callers[i].key, s.callers[i].slot = fmt.Sprint(s.prefix, "-", s.number, "-", i), i
		}
	}
}

// Outcome is what one process reports.
type Outcome struct {
	Sections int64          `json:"sections"`           // while watched
	Watched  time.Duration  `json:"watched,omitempty"`  // for how long, if by time
	Began    int64          `json:"began"`              // Unix time in ns
	Ended    int64          `json:"ended"`              //
	Waits    *measure.Waits `json:"waits,omitempty"`    // what the scenario times
	Stalled  time.Duration  `json:"stalled,omitempty"`  // no section ended in this last part of Watched
	GaveUp   int64          `json:"gave_up,omitempty"`  // locks that were asked for and not given
	Refusal  string         `json:"refusal,omitempty"`  // the first of them
	Unlocks  int64          `json:"unlocks,omitempty"`  // that failed
	Unlocked string         `json:"unlocked,omitempty"` // the first of them
	Stuck    int64          `json:"stuck,omitempty"`    // callers that did not return at the end
	Ideal    time.Duration  `json:"ideal,omitempty"`    // all bodies of all processes, one after the other
	Leases   Weight         `json:"leases,omitzero"`    // what holding all of them adds
	Calls    Calls          `json:"calls,omitzero"`     // what they cost
	Used     time.Duration  `json:"used,omitempty"`     // of all processors while watched
	Store    *server.Load   `json:"store,omitempty"`    // what the store did meanwhile
}

// saturate has every caller lock and unlock as often as it can.
func saturate(ctx context.Context, s *stage) {
	s.watch(ctx, func(ctx context.Context, i int) {
		for s.goesOn() {
			if unlock := s.lock(ctx, i); unlock != nil {
				s.section(i)
				s.end(unlock)
			}
		}
	})
}

// acquiring is saturate that times each acquisition.
func acquiring(ctx context.Context, s *stage) {
	s.watch(ctx, func(ctx context.Context, i int) {
		waits := new(measure.Waits)
		defer func() { s.report(waits) }()
		for s.goesOn() {
			asked := time.Now()
			if unlock := s.lock(ctx, i); unlock != nil {
				if s.watching.Load() {
					waits.Add(time.Since(asked))
				}
				s.section(i)
				s.end(unlock)
			}
		}
	})
}

// timed is saturate that times each wait. A wait that did not end counts among the
// worst, or starvation would improve the figures.
func timed(ctx context.Context, s *stage) {
	s.watch(ctx, func(ctx context.Context, i int) {
		waits := new(measure.Waits)
		defer func() { s.report(waits) }()
		asked := time.Now()
		for s.goesOn() {
			if unlock := s.lock(ctx, i); unlock != nil {
				if s.watching.Load() {
					waits.Add(time.Since(asked))
				}
				s.section(i)
				s.end(unlock)
				asked = time.Now()
			}
		}
		waits.Unfinished(time.Unix(0, s.over.Load()).Sub(asked))
	})
}

// relay passes the lock from process to process and times from one's wish to unlock to
// the other's grant. A process asks again after another one has had its turn, so that it
// does not take the lock back from those who wait.
func relay(ctx context.Context, s *stage) {
	s.watch(ctx, func(ctx context.Context, i int) {
		waits := new(measure.Waits)
		defer func() { s.report(waits) }()
		for s.goesOn() {
			unlock := s.lock(ctx, i)
			if unlock == nil {
				continue
			}
			if before := s.witness.released(); before > 0 && s.watching.Load() {
				waits.Add(time.Duration(time.Now().UnixNano() - before))
			}
			s.witness.holder().Store(s.number)
			s.section(i)
			s.witness.release(time.Now().UnixNano())
			s.end(unlock)
			for s.witness.holder().Load() == s.number && s.goesOn() {
				time.Sleep(500 * time.Microsecond)
			}
		}
	})
}

// once has every caller lock once.
func once(ctx context.Context, s *stage) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(s.pace.Limit, func() { s.finish(cancel) }).Stop()
	s.outcome.Began = time.Now().UnixNano()
	var all sync.WaitGroup
	for i := range s.callers {
		s.begin(&all, func() {
			unlock := s.lock(ctx, i)
			if unlock == nil {
				if !s.goesOn() {
					s.refused(fmt.Errorf("still waiting after %v", s.pace.Limit))
				}
				return
			}
			s.section(i)
			s.end(unlock)
		})
	}
	s.gather(&all, s.pace.Limit+s.pace.Grace)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome.Ended, s.outcome.Sections = time.Now().UnixNano(), s.sections()
}

// watch runs the callers, counts what they do in the time that is watched, and has them
// end.
func (s *stage) watch(ctx context.Context, call func(context.Context, int)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for i := range s.callers {
		s.begin(&all, func() { call(ctx, i) })
	}
	time.Sleep(s.pace.Warm)
	s.watching.Store(true)
	load := s.load(ctx)
	began, first, before := time.Now(), s.sections(), measure.Processor()
	last, moved := first, began
	for range 20 { // looks, as a hang shows only in what did not happen
		time.Sleep(s.pace.Watch / 20)
		if n := s.sections(); n != last {
			last, moved = n, time.Now()
		}
	}
	watched := time.Since(began)
	count, used := s.sections()-first, measure.Processor()-before
	s.watching.Store(false)
	if now := s.load(ctx); now != nil && load != nil {
		s.outcome.Store = &server.Load{Requests: now.Requests - load.Requests, Processor: now.Processor - load.Processor}
		if now.Requests < 0 {
			s.outcome.Store.Requests = -1
		}
	}
	s.finish(cancel)
	s.gather(&all, s.pace.Grace)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome.Began, s.outcome.Watched, s.outcome.Sections = began.UnixNano(), watched, count
	s.outcome.Ended, s.outcome.Used = time.Now().UnixNano(), used
	if still := watched - moved.Sub(began); still > watched/2 {
		s.outcome.Stalled = still
	}
}

// load is what the store has done so far; nil if that is not read, or cannot be.
func (s *stage) load(ctx context.Context) *server.Load {
	if s.meter == nil {
		return nil
	}
	l, err := s.meter.Read(ctx)
	if err != nil {
		return nil
	}
	return &l
}

// begin runs a caller.
func (s *stage) begin(all *sync.WaitGroup, call func()) {
	s.busy.Add(1)
	all.Go(func() {
		defer s.busy.Add(-1)
		call()
	})
}

// gather waits that long for the callers to return, and counts those that don't.
func (s *stage) gather(all *sync.WaitGroup, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcome.Stuck = s.busy.Load()
	}
}

// result is what the process reports, which callers that are stuck may still change.
func (s *stage) result() *Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outcome
	if o.Waits != nil {
		w := *o.Waits
		o.Waits = &w
	}
	return &o
}

// goesOn reports whether callers are to lock.
func (s *stage) goesOn() bool { return s.over.Load() == 0 }

// settling is how long a caller may take to leave a critical section with nothing to do.
const settling = 50 * time.Millisecond

// finish has callers lock no more, and ends the waits of those who wait when nobody is in
// a critical section any more: with some peers the context of a wait is that of the hold.
func (s *stage) finish(cancel func()) {
	s.over.Store(time.Now().UnixNano())
	time.Sleep(settling + s.scenario.Body + s.scenario.Jitter)
	cancel()
}

// lock returns nil if there is no lock, or it came too late. It counts if it was refused.
func (s *stage) lock(ctx context.Context, i int) func() error {
	unlock, err := s.process.Lock(ctx, s.callers[i].key)
	switch {
	case err == nil && s.goesOn():
		return unlock
	case err == nil:
		_ = unlock() // it may have ended with its context
	case s.goesOn():
		s.refused(err)
	}
	return nil
}

// lingers says how many critical sections with nothing to do there are for one that lets
// other goroutines run, so that somebody else who believes to have the lock is met.
const lingers = 256

// section is the critical section.
func (s *stage) section(i int) {
	slot := s.callers[i].slot
	s.witness.enter(slot)
	n := s.callers[i].sections.Add(1)
	if s.scenario.Body > 0 {
		measure.Spend(s.scenario.Body + rand.N(s.scenario.Jitter+1))
	} else if n%lingers == 0 {
		runtime.Gosched()
	}
	s.witness.leave(slot)
}

func (s *stage) end(unlock func() error) {
	if err := unlock(); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.outcome.Unlocks++; s.outcome.Unlocks == 1 {
			s.outcome.Unlocked = err.Error()
		}
	}
}

func (s *stage) refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outcome.GaveUp++; s.outcome.GaveUp == 1 {
		s.outcome.Refusal = err.Error()
	}
}

func (s *stage) report(w *measure.Waits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outcome.Waits == nil {
		s.outcome.Waits = new(measure.Waits)
	}
	s.outcome.Waits.Merge(w)
}

func (s *stage) sections() (n int64) {
	for i := range s.callers {
		n += s.callers[i].sections.Load()
	}
	return n
}
