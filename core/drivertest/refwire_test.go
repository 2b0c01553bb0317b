package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

// wire carries requests of the reference driver to its store. It does what
// networks do to a request and its reply.
type wire struct {
	mu      sync.Mutex
	silence chan struct{} // not nil while nothing is answered; closed at its end
	delay   time.Duration // of each reply
	drops   map[drivertest.Op]int
	losing  bool
	refuses error // what is answered instead; nil: nothing
}

var errConnection = errors.New("connection closed")

var errReadOnly = errors.New("the store is read-only")

// opNone is a request whose reply cannot be dropped.
const opNone = drivertest.Op(255)

// exchange sends a request and waits for the reply, no longer than until ctx
// ends. A request whose caller has gone is executed all the same, unless dead
// is closed first.
func exchange[T any](ctx context.Context, w *wire, running *sync.WaitGroup, dead <-chan struct{}, op drivertest.Op, request func() T) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer, 1)
	running.Go(func() {
		w.mu.Lock()
		silence := w.silence
		w.mu.Unlock()
		if silence != nil {
			select {
			case <-silence:
			case <-dead:
				return
			}
		}
		w.mu.Lock()
		refuses := w.refuses
		w.mu.Unlock()
		if refuses != nil {
			time.Sleep(time.Millisecond) // or virtual time would stand still while it is asked again
			answered <- answer{err: refuses}
			return
		}
		v := request()
		w.mu.Lock()
		delay, dropped := w.delay, w.drops[op] > 0
		if dropped {
			w.drops[op]--
		}
		w.mu.Unlock()
		if delay > 0 {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-dead:
				return
			}
		}
		if dropped {
			answered <- answer{err: errConnection}
			return
		}
		answered <- answer{v: v}
	})
	var none T
	select {
	case a := <-answered:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-dead:
		return none, driver.ErrClosed
	}
}

func (w *wire) stall() (resume func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	silence := make(chan struct{})
	w.silence = silence
	return func() {
		w.mu.Lock()
		w.silence = nil
		w.mu.Unlock()
		close(silence)
	}
}

func (w *wire) refuse() (cause string, restore func()) {
	w.setRefusal(errReadOnly)
	return errReadOnly.Error(), func() { w.setRefusal(nil) }
}

func (w *wire) setRefusal(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuses = err
}

func (w *wire) dropReply(op drivertest.Op) (dropped func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drops[op] = 1
	return func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.drops[op] == 0
	}
}

func (w *wire) delayReplies(d time.Duration) (restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.delay = 0
	}
}

func (w *wire) losePushes() (restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losing = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.losing = false
	}
}

// pushes reports whether what the store sends unasked arrives.
func (w *wire) pushes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.losing && w.silence == nil
}

// setup makes what the store lacks, which is nothing.
func (w *wire) setup(s *store) error {
	switch s.fault {
	case setupStopsTheStore:
		resume := w.stall()
		time.Sleep(time.Second)
		resume()
	case setupFailsBesideTraffic:
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, r := range s.keys {
			if len(r.holders) > 0 {
				return errors.New("deadlock detected")
			}
		}
	}
	return nil
}
