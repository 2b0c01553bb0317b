package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// replace ends a lease and asks for the next one in the same step.
func (ln *line) replace(tn *tenure) {
	old := tn.ending(0)
	ln.forget(tn, time.Now())
	ln.ask(&old)
}

// refresh renews a lease before it is handed on, or before others join those who
// hold it.
func (ln *line) refresh(tn *tenure) {
	tn.refreshing = true
	ttl := ln.first.plan.TTL
	renewal := tn.renewal(ttl)
	ln.engine.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ln.engine.ctx, ln.engine.timeout)
		defer cancel()
		sent := time.Now()
		r := ln.engine.session.Renew(ctx, []driver.Renewal{renewal})[0]
		ln.engine.heard(ln.engine.ctx, r.Err)
		ln.shard.mu.Lock()
		defer ln.shard.mu.Unlock()
		tn.refreshing = false
		if tn.current() {
			ln.refreshed(tn, r, ttl, sent)
		}
	})
}

// refreshed goes on after a refresh.
func (ln *line) refreshed(tn *tenure, r driver.Renewed, ttl time.Duration, sent time.Time) {
	now := time.Now()
	if r.Err == nil {
		tn.extend(r, ttl, sent)
	}
	if errors.Is(r.Err, driver.ErrNotHeld) || driver.Remaining(tn.Deadline, now) <= 0 {
		ln.lose(tn)
		return
	}
	s := ln.situation(tn, nil, now)
	s.renewed, s.failed = true, r.Err != nil
	ln.move(tn, s, now)
	ln.advance()
}
