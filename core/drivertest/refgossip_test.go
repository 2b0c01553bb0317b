package drivertest_test

import (
	"context"
	"maps"
	"slices"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
)

var _ driver.Gossip = (*session)(nil)

// opTell is a request that no check loses the reply of.
const opTell drivertest.Op = 255

func (s *session) Listen(topic string, l driver.Listener) (stop func()) {
	st := s.d.store
	st.mu.Lock()
	if st.topics == nil {
		st.topics = make(map[string]map[*session]*driver.Listener)
	}
	if st.topics[topic] == nil {
		st.topics[topic] = make(map[*session]*driver.Listener)
	}
	if s.d.fault != secondListenerIsIgnored || st.topics[topic][s] == nil {
		st.topics[topic][s] = &l
	}
	st.mu.Unlock()
	if s.d.fault != listenerIsNotTold {
		l.Listening()
	}
	return func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.topics[topic][s] == &l && s.d.fault != stoppedListenerHears {
			delete(st.topics[topic], s)
		}
	}
}

func (s *session) Tell(ctx context.Context, topic string, message []byte) error {
	if err := s.enter(); err != nil {
		if s.d.fault == closedSessionTells {
			return nil
		}
		return err
	}
	defer s.leave()
	if s.d.fault == tellIgnoresItsContext {
		ctx = context.Background()
	}
	if s.d.fault == messageIsCut {
		message = message[:min(len(message), 8<<10)]
	}
	_, err := exchange(ctx, s.d.wire, &s.requests, s.dead, opTell, func() bool {
		st := s.d.store
		st.mu.Lock()
		all := slices.Collect(maps.Values(st.topics[topic]))
		if s.d.fault == topicsAreOne {
			for _, listeners := range st.topics {
				all = slices.AppendSeq(all, maps.Values(listeners))
			}
		}
		st.mu.Unlock()
		for _, l := range all {
			l.Heard(slices.Clone(message))
		}
		return true
	})
	return err
}
