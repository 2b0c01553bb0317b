package drivertest_test

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

var _ driver.PromptAll = (*session)(nil)

func (s *session) Begin(r driver.Request, sent time.Time) (g driver.Grant, done bool, err error) {
	if s.enter() != nil {
		return g, false, nil
	}
	defer s.leave()
	patience := driver.Promptness
	if s.d.fault == beginTakesItsTime {
		patience = s.timeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.mu.Lock()
	s.held[r.Owner] = r.ID
	if s.d.fault == begunIsForgotten {
		s.forgotten = r.Owner
	}
	s.mu.Unlock()
	asked := r
	if s.d.fault == begunHasAPlaceOfItsOwn {
		asked.Owner[0]++
	}
	a := ask{Request: asked, from: s, create: true}
	rep, err := exchange(ctx, s.d.wire, &s.requests, s.dead, drivertest.OpAcquire, func() reply { return s.d.store.ask(a) })
	switch {
	case err != nil || rep.kind == queuedReply:
		return g, false, nil
	case rep.kind == overReply:
		return g, true, driver.ErrPlaceLost
	case rep.kind == busyReply:
		return g, true, s.heldError(rep)
	}
	return driver.Grant{ID: r.ID, Token: rep.token, Deadline: driver.Deadline(sent, r.TTL), Contended: rep.contended}, true, nil
}

func (s *session) BeginAll(rs []driver.Request, sent time.Time, begun []driver.Begun) {
	var all sync.WaitGroup
	for i, r := range rs {
		all.Go(func() {
			at := i
			if s.d.fault == begunTogetherIsMixedUp {
				at = len(rs) - 1 - i
			}
			b := &begun[at]
			b.Grant, b.Done, b.Err = s.Begin(r, sent)
		})
	}
	all.Wait()
}

func (s *session) End(e driver.Ending, _ time.Time) (done bool, err error) {
	if s.enter() != nil {
		return false, nil
	}
	defer s.leave()
	ctx, cancel := context.WithTimeout(context.Background(), driver.Promptness)
	defer cancel()
	s.mu.Lock()
	delete(s.held, e.Owner)
	s.mu.Unlock()
	notHeld, err := exchange(ctx, s.d.wire, &s.requests, s.dead, drivertest.OpRelease, func() bool { return s.d.end(e) })
	switch {
	case err != nil:
		return false, nil
	case notHeld:
		return true, driver.ErrNotHeld
	}
	return true, nil
}
