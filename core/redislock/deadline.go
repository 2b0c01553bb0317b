package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// sharedDeadline is a context shared by calls that start within patience/2 of each other. It
// ends patience after the first of them started. A context for each call would cost a tenth
// or more of the call's time at a near server: a timer that ends before all others wakes a
// thread, which then takes the processor from the server.
type sharedDeadline struct {
	ctx   context.Context
	began time.Time
	over  context.CancelFunc
}

// patience bounds how long a batch may take while a caller in exchange waits for it. Before
// that, the caller may have waited as long for another batch.
const patience = driver.Promptness / 2

// at returns the context of a call that begins now.
func (s *sharedDeadline) at(parent context.Context, now time.Time) context.Context {
	if s.ctx == nil || now.Sub(s.began) > patience/2 {
		// Earlier calls may still use the old context, which ends by itself.
		s.ctx, s.over = context.WithDeadline(parent, now.Add(patience))
		s.began = now
	}
	return s.ctx
}

// end cancels the present context.
func (s *sharedDeadline) end() {
	if s.over != nil {
		s.over()
	}
}
