package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// session is one engine's use of the cluster.
type session struct {
	d       *Driver
	sink    driver.Sink
	timeout time.Duration // of one request, with its repetitions

	claims   claims
	refusals refusals
	spares   spares
	doubts   doubts
	cleaner  *cleaner

	open  context.Context // ends, with ErrClosed, when Close begins
	shut  context.CancelCauseFunc
	ctx   context.Context // ends when Close has done its work
	abort context.CancelFunc

	mu      sync.Mutex
	closed  bool
	lulls   term           // the latest lease of outlasting
	running sync.WaitGroup // calls of the session's methods
	workers sync.WaitGroup // goroutines
}

func newSession(d *Driver, c driver.Config) *session {
	s := &session{d: d, sink: c.Sink, timeout: c.StoreTimeout}
	s.ctx, s.abort = context.WithCancel(context.Background())
	s.open, s.shut = context.WithCancelCause(s.ctx)
	s.claims.init(d.grants)
	s.cleaner = newCleaner(s)
	return s
}

// enter begins a method's call, which ends with leave. The context returned also ends
// when the session is closed.
func (s *session) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, driver.ErrClosed
	}
	s.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.open, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.running.Done()
	}, nil
}

// start runs f as a goroutine of the session.
func (s *session) start(f func()) { s.workers.Go(f) }

// Close ends the session. Leases that were granted stay until they expire.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.shut(driver.ErrClosed)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	drained := false // once done
	go func() {
		defer close(done)
		s.running.Wait()
		s.claims.abandon()
		s.giveUpSpares()
		drained = s.cleaner.drain(ctx)
		s.abort()
		s.workers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.abort() // what is still under way ends when the client library lets go of it
	}
	select {
	case <-done:
		if drained {
			return nil
		}
		return errors.Join(errors.New("etcd: session closed before the server had confirmed the end of all leases"), ctx.Err())
	default:
		return errors.Join(errors.New("etcd: session closed with work left"), ctx.Err())
	}
}

// giveUpSpares ends the leases that were kept for places to come.
func (s *session) giveUpSpares() {
	left := s.spares.close()
	for batch := range slices.Chunk(left, 64) {
		d, longest := debt{used: true}, int64(0)
		for _, t := range batch {
			d.leases, longest = append(d.leases, t.id), max(longest, t.seconds)
		}
		s.cleaner.owe(d, inSeconds(longest))
	}
}
