package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// session is one engine's use of the database.
type session struct {
	config
	sink    driver.Sink
	timeout time.Duration // of one attempt
	name    name

	claims   claims
	turns    turns
	renewals chan struct{} // a few batches at a time, which leaves others a part of the pool
	cleaner  *cleaner
	started  sync.Once // the watch, and the listener

	ctx     context.Context // ends when Close has done its work
	cancel  context.CancelFunc
	closing chan struct{} // closed when Close begins

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // calls of the session's methods
	workers sync.WaitGroup // goroutines
}

func newSession(c config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, name: randomName(), closing: make(chan struct{}), renewals: make(chan struct{}, 4)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.claims.init()
	s.cleaner = newCleaner(s)
	return s
}

// enter begins a method's call, which ends with s.running.Done.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.running.Add(1)
	return nil
}

// start runs f as a goroutine of the session.
func (s *session) start(f func()) { s.workers.Go(f) }

// Ping reports whether the server answers, has the tables, and lets their rows be locked.
func (s *session) Ping(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	_, _, err := ask(ctx, s, s.closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		tx, err := s.db.BeginTx(ctx, readCommitted)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = tx.Rollback() }() // nothing was changed
		rows, err := tx.QueryContext(ctx, s.q.lock, []byte(nil))
		if err == nil {
			err = errors.Join(rows.Err(), rows.Close())
		}
		if err != nil {
			return struct{}{}, err
		}
		var n int64
		return struct{}{}, tx.QueryRowContext(ctx, s.q.ping).Scan(&n)
	})
	return err
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	drained := false // once done
	go func() {
		defer close(done)
		s.running.Wait()
		drained = s.cleaner.drain(ctx)
		s.cancel()
		s.workers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		// What is still under way ends when the client library lets go of it.
		s.cancel()
	}
	select {
	case <-done:
		if drained {
			return nil
		}
		return errors.Join(errors.New("sql: session closed before the server had confirmed the end of all leases"), ctx.Err())
	default:
		return errors.Join(errors.New("sql: session closed with work left"), ctx.Err())
	}
}
