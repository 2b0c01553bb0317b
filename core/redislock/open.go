package redislock

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Open starts a session.
func (d *redisDriver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case c.Sink == nil:
		return nil, errors.New("open a Redis lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open a Redis lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	case d.connections < 1:
		return nil, fmt.Errorf("open a Redis lock session: WithConnections(%d); at least 1 is needed", d.connections)
	}
	if err := d.replicas.check(c.StoreTimeout); err != nil {
		return nil, fmt.Errorf("open a Redis lock session: %w", err)
	}
	w, err := d.wire(c.StoreTimeout)
	if err != nil {
		return nil, fmt.Errorf("open a Redis lock session: %w", err)
	}
	if own, ok := w.(*clientWire); ok {
		if err := own.confirmBy(d.replicas, c.StoreTimeout); err != nil {
			return nil, fmt.Errorf("open a Redis lock session: %w", err)
		}
	}
	s := newSession(d.config, c, w)
	if s.sharesKeys() {
		return &onlyPlain{s, s}, nil
	}
	return s, nil
}

func newSession(c config, dc driver.Config, w wire) *session {
	s := &session{
		sink:    dc.Sink,
		timeout: dc.StoreTimeout,
		channel: named(c.channel(), dc.Identity),
		jitter:  c.jitter,
		names:   c.names,
		confirm: c.replicas != nil,
		Life:    kit.NewLife("redis", "the server"),
	}
	if own, ok := w.(*clientWire); ok {
		s.database = own.database
	}
	s.calls = s.newLanes(w, c.connections, w.connections())
	s.renewals = s.newLanes(w, 2, 2) // one dead connection must not hold up all leases
	s.claims.init()
	s.cleaner = newCleaner(s.Life, s.calls, s.timeout, s.jitter)
	s.listener = newListener(s.Life, w, s.channel, s.jitter)
	s.listener.onUp, s.listener.onPush = s.catchUp, s.pushed
	return s
}

func (s *session) newLanes(w wire, width, most int) *lanes {
	return &lanes{wire: w, newLane: func() *lane {
		return &lane{wire: w, ctx: s.Ctx, workers: &s.sending, width: width, maxWidth: most, timeout: s.timeout, created: time.Now()}
	}}
}
