package redlock

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Open starts a session.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case c.Sink == nil:
		return nil, errors.New("open a redlock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open a redlock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	case d.nodeTimeout < 0:
		return nil, fmt.Errorf("open a redlock session: WithNodeTimeout(%v); it must not be negative", d.nodeTimeout)
	case d.restartDelay < 0:
		return nil, fmt.Errorf("open a redlock session: WithRestartDelay(%v); it must not be negative", d.restartDelay)
	}
	ws, err := d.wires(c.StoreTimeout)
	if err != nil {
		return nil, fmt.Errorf("open a redlock session: %w", err)
	}
	if err := d.gauge.start(d.meters, d.health); err != nil {
		return nil, fmt.Errorf("open a redlock session: %w", err)
	}
	return newSession(d, c, ws), nil
}

func newSession(d *Driver, c driver.Config, ws []wire) *session {
	s := &session{
		sink:         c.Sink,
		timeout:      c.StoreTimeout,
		nodeTimeout:  d.nodeTimeout,
		restartDelay: d.restartDelay,
		jitter:       d.jitter,
		clock:        d.clock,
		nodes:        ws,
		health:       d.health,
		quorum:       majority(len(ws)),
		channel:      newChannel(c.Identity),
		Life:         kit.NewLife("redlock", "a majority of nodes"),
	}
	s.stopGauge = sync.OnceFunc(d.gauge.stop)
	s.claims.all = make(map[driver.Owner]*claim)
	for _, w := range ws {
		s.lanes = append(s.lanes, newLane(s.Ctx, w, &s.sending))
		s.renewals = append(s.renewals, newLane(s.Ctx, w, &s.sending))
		s.cleaners = append(s.cleaners, newCleaner(s.Life, w, s.timeout, s.jitter))
	}
	return s
}
