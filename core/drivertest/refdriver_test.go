package drivertest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

// reference is a small correct driver, in which a fault can be switched on.
type reference struct {
	fault fault
	store *store
	wire  *wire
}

const referenceWake = 400 * time.Millisecond

func (d *reference) Capabilities() driver.Capabilities {
	c := driver.Capabilities{
		Name:   "reference",
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: 10 * time.Millisecond,
		Tokens: driver.ClockTokens,
		Strict: true,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Bounds: true,
		After:  true,
		Wake:   referenceWake,

		Written:  true,
		Identity: true,
		Trace:    true,
	}
	if d.fault == capabilitiesAreEmpty {
		c.MinTTL, c.Wake = 0, 0
	}
	return c
}

func (d *reference) Open(c driver.Config) (driver.Session, error) {
	s := &session{
		d: d, sink: c.Sink, timeout: c.StoreTimeout, identity: c.Identity,
		waits: make(map[driver.Owner]*wait), held: make(map[driver.Owner]driver.ID),
		pool:    make(chan struct{}, 20),
		closing: make(chan struct{}), dead: make(chan struct{}),
	}
	if d.fault == openAsksTheStore {
		if err := s.Ping(context.Background()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// end ends a lease when the request for it arrives.
func (d *reference) end(e driver.Ending) (notHeld bool) {
	if e.Written != nil && d.fault != writtenIsTheAnswer {
		e.Written()
	}
	return d.store.end(e)
}

type session struct {
	d        *reference
	sink     driver.Sink
	timeout  time.Duration
	identity string

	mu    sync.Mutex
	waits map[driver.Owner]*wait
	held  map[driver.Owner]driver.ID // of what the store may push about

	forgotten driver.Owner // whose place is not given up, for a fault

	pool     chan struct{} // of connections, for the fault that needs one to wait
	closing  chan struct{} // closed when Close begins
	dead     chan struct{} // closed when Close gives up its connections
	once     sync.Once
	running  sync.WaitGroup // calls of the session, and clean-ups
	requests sync.WaitGroup // begun by one of those
}

type wait struct{ woken chan struct{} }

// push delivers what the store sends unasked. The store calls it with its lock
// held, so delivery takes no lock of the store's.
func (s *session) push(deliver func()) {
	if s.d.wire.pushes() && s.d.fault != wakeUpsAreNotSent {
		deliver()
	}
}

func (s *session) wake(o driver.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.waits[o]; w != nil {
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
}

func (s *session) ousted(o driver.Owner) {
	s.mu.Lock()
	id, ok := s.held[o]
	s.mu.Unlock()
	if ok {
		s.sink.Lost(id, errOusted)
	}
}

var errOusted = errors.New("reference: taken")

func (s *session) contended(o driver.Owner) {
	s.mu.Lock()
	id, ok := s.held[o]
	s.mu.Unlock()
	if ok {
		s.sink.Contended(id, true)
	}
}

// attempts is how often a client library sends a request, unasked.
const attempts = 3

// send makes a request, again if its connection is closed. It returns when the
// reply that counts was asked for.
func send[T any](ctx context.Context, s *session, op drivertest.Op, request func() T) (v T, sent time.Time, err error) {
	for range attempts {
		select {
		case <-s.dead:
			return v, sent, driver.ErrClosed
		default:
		}
		switch s.d.fault {
		case contextIsIgnored:
			ctx = context.Background()
		case cancelIsIgnored:
			deadline, ok := ctx.Deadline()
			ctx = context.Background()
			if ok {
				var stop context.CancelFunc
				ctx, stop = context.WithDeadline(ctx, deadline)
				defer stop()
			}
		}
		timeout := s.timeout
		if s.d.fault == storeTimeoutIsIgnored {
			timeout = time.Hour
		}
		if s.d.fault == withdrawalLeavesAGrant && ctx.Err() != nil {
			// It is executed all the same, and here for certain.
			_, _ = exchange(context.Background(), s.d.wire, &s.requests, s.dead, op, request)
			return v, sent, ctx.Err()
		}
		attempt, cancel := context.WithTimeout(ctx, timeout)
		sent = time.Now()
		v, err = exchange(attempt, s.d.wire, &s.requests, s.dead, op, request)
		if s.d.fault == deadlineFromTheReply {
			sent = time.Now()
		}
		if err != nil && s.d.fault == silenceLeavesAGoroutine {
			go func() { <-make(chan struct{}) }()
		}
		if s.d.fault == refusalIsTakenForSilence && errors.Is(err, errReadOnly) {
			<-attempt.Done() // as if it had tried again and again
			err = attempt.Err()
		}
		cancel()
		if !errors.Is(err, errConnection) || s.d.fault == failureIsTakenForLoss || s.d.fault == lostReplyLeavesAGhost {
			return v, sent, err
		}
	}
	return v, sent, err
}

// bounded returns a context that also ends when the session closes.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if s.d.fault == closeLeavesWaits {
		return ctx, func() { cancel(nil) }
	}
	stopped := make(chan struct{})
	s.running.Go(func() {
		select {
		case <-s.closing:
			cancel(driver.ErrClosed)
		case <-stopped:
		}
	})
	return ctx, func() { close(stopped); cancel(nil) }
}

// enter begins a call, which ends with leave.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return driver.ErrClosed
	default:
	}
	s.running.Add(1)
	return nil
}

func (s *session) leave() { s.running.Done() }
