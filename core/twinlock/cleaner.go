package twinlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	firstPause = 20 * time.Millisecond // before an ending is repeated
	maxPause   = time.Second
)

// owe ends one store's part of a lease that was given up: detached from whoever gave it
// up, and repeated until the store answers or the lease has ended by itself.
func (s *session) owe(side int, e driver.Ending) {
	s.debts.Add(1)
	s.workers.Go(func() {
		defer s.debts.Done()
		until := e.Deadline.Add(2*s.timeout + driver.Margin(time.Second))
		for pause := firstPause; ; pause = min(2*pause, maxPause) {
			ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
			err := s.stores[side].Release(ctx, []driver.Ending{e})[0]
			cancel()
			var refused *driver.PermanentError
			switch {
			case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.As(err, &refused):
				return
			case time.Now().After(until):
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.ctx.Done():
				timer.Stop()
				return
			}
		}
	})
}
