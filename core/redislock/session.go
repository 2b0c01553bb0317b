package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's session at the server.
type session struct {
	sink     driver.Sink
	timeout  time.Duration // of one attempt
	channel  string        // of this session's pushes
	database int           // of the server
	jitter   func() float64
	names    func(string) string // of plain keys, or nil: see WithKeys
	confirm  bool                // by replicas: see WithReplicas

	calls    *lanes // acquisitions and endings
	renewals *lanes // lanes of their own, so that a burst of acquisitions cannot starve them
	claims   claims
	busy     busyKeys
	cleaner  *cleaner
	listener *listener

	places  sync.Pool // of *place, for Begin
	endings sync.Pool // of *ending, for End

	*kit.Life
	sending sync.WaitGroup // the lanes' workers
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, s.cleaner.drain, func() {
		s.calls.close()
		s.renewals.close()
		s.sending.Wait()
	})
}
