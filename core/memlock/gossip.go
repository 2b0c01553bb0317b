package memlock

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Gossip = (*session)(nil)

// topics are who listens to what.
type topics struct {
	mu  sync.Mutex
	all map[string][]listener
}

type listener struct {
	s     *session
	about *driver.Listener
}

// Listen listens from here on: sessions of a store in memory are always in reach.
func (s *session) Listen(topic string, l driver.Listener) (stop func()) {
	t := &s.d.topics
	t.mu.Lock()
	if t.all == nil {
		t.all = make(map[string][]listener)
	}
	t.remove(topic, func(other listener) bool { return other.s == s })
	t.all[topic] = append(t.all[topic], listener{s, &l})
	t.mu.Unlock()
	l.Listening()
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.remove(topic, func(other listener) bool { return other.about == &l })
	}
}

// remove forgets the listeners of a topic that match. t.mu is held.
func (t *topics) remove(topic string, match func(listener) bool) {
	rest := slices.DeleteFunc(slices.Clone(t.all[topic]), match) // Tell goes through the old ones
	if t.all[topic] = rest; len(rest) == 0 {
		delete(t.all, topic)
	}
}

// forget removes all that a session listens to.
func (t *topics) forget(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic := range t.all {
		t.remove(topic, func(l listener) bool { return l.s == s })
	}
}

// Tell calls the listeners one after the other.
func (s *session) Tell(ctx context.Context, topic string, message []byte) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	t := &s.d.topics
	t.mu.Lock()
	all := t.all[topic]
	t.mu.Unlock()
	for _, l := range all {
		l.about.Heard(bytes.Clone(message))
	}
	return nil
}
