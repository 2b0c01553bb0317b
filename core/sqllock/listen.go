package sqllock

import (
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// listen keeps the session's channel, and subscribes anew when it breaks.
func (s *session) listen() {
	ctx := s.Open
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Second) {
		ended := make(chan bool, 1)
		s.Start(func() { // which a source that ignores ctx may hold up
			worked := false
			_ = s.source.Listen(ctx, channel(s.name), func() {
				worked = true
				s.claims.nudgeAll() // what was sent before is gone
			}, s.notified)
			ended <- worked
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

// notified takes one notification. What it does not understand it leaves to the next
// look.
func (s *session) notified(payload string) {
	kind, of, ok := parsePayload(payload)
	if !ok {
		return
	}
	c := &s.claims
	c.mu.Lock()
	m := c.byMark[of]
	if m == nil {
		c.mu.Unlock()
		return
	}
	id, held, releasing := m.id, m.held, !m.first.IsZero()
	switch {
	case kind == pushTurn && !held:
		m.wake.Set()
	case kind == pushKept && !held:
		c.expect(time.Now())
	}
	if kind == pushLost && held && !releasing {
		c.drop(id.Owner)
	}
	c.mu.Unlock()
	switch {
	case kind == pushWant && held:
		s.sink.Contended(id, true)
	case kind == pushLost && held && !releasing:
		s.sink.Lost(id, errTaken)
	}
}

// parsePayload splits a notification into its kind and the mark of its owner.
func parsePayload(payload string) (kind byte, of string, ok bool) {
	const length = 1 + 16
	if len(payload) != length {
		return 0, "", false
	}
	switch payload[0] {
	case pushTurn, pushWant, pushLost, pushKept:
		return payload[0], payload[1:], true
	}
	return 0, "", false
}
