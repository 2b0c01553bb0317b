package sqllock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// listenLoop listens on the session's channel, and reconnects when the connection breaks.
func (s *session) listenLoop() {
	ctx := s.Open
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Second) {
		ended := make(chan bool, 1)
		s.Start(func() { // Listen may ignore ctx
			var worked atomic.Bool
			listen, err := s.hearing.begin(), errors.New("Listen has ended its goroutine")
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("Listen has panicked: %v", p)
				}
				s.hearing.end(err)
				ended <- worked.Load()
			}()
			err = s.notifications.Listen(ctx, channel(s.id), func() {
				s.claims.wakeAllWaiters() // notifications sent before are lost
				if !worked.Swap(true) {
					s.Start(func() { s.tellItself(listen) })
				}
			}, func(payload string) {
				if payload == echo {
					s.hearing.heard(listen)
					return
				}
				s.handleNotification(payload)
			})
		})
		select {
		case worked := <-ended:
			if worked {
				pause = 20 * time.Millisecond
			}
		case <-ctx.Done():
			return
		}
		kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(pause)))
	}
}

// handleNotification handles one notification. It ignores unknown ones: the next poll finds
// out anyway.
func (s *session) handleNotification(payload string) {
	kind, of, ok := parsePayload(payload)
	if !ok {
		return
	}
	c := &s.claims
	c.mu.Lock()
	own := c.byHash[of]
	if own == nil {
		c.mu.Unlock()
		return
	}
	id, held, releasing := own.id, own.held, !own.releaseAskedAt.IsZero()
	switch {
	case kind == notifyGranted && !held:
		own.wake.Set()
	case kind == notifyKept && !held:
		c.expectExpiry(time.Now())
	}
	if kind == notifyContended {
		c.hear(own, true)
	}
	if kind == notifyLost && held && !releasing {
		c.forgetLocked(id.Owner)
	}
	c.mu.Unlock()
	switch {
	case kind == notifyContended && held:
		s.sink.Contended(id, true)
	case kind == notifyLost && held && !releasing:
		s.sink.Lost(id, errTaken)
	}
}
