package redislock

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/lockaround/lockaround/core/driver"
)

var _ driver.Gossip = (*session)(nil)

// topicChannel names the channel of a topic. Channels are those of a server, and topics those of a
// database. No session's own channel begins so: see randomChannel.
func topicChannel(database int, topic string) string {
	return ChannelPrefix + "/" + strconv.Itoa(database) + "/" + topic
}

// topics are what a session listens to besides its own channel.
type topics struct {
	mu        sync.Mutex
	byChannel map[string]*driver.Listener
	confirmed map[string]bool // channels that the server has confirmed
	changed   chan struct{}   // gets one element after a change
}

func newTopics() *topics {
	return &topics{byChannel: make(map[string]*driver.Listener), confirmed: make(map[string]bool), changed: make(chan struct{}, 1)}
}

// add makes the session listen to a channel.
func (t *topics) add(channel string, l *driver.Listener) {
	t.mu.Lock()
	t.byChannel[channel] = l
	still := t.confirmed[channel] // others have just listened
	t.noteChange()
	t.mu.Unlock()
	if still {
		l.Listening()
	}
}

// remove ends that, unless another listener has taken the place.
func (t *topics) remove(channel string, l *driver.Listener) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byChannel[channel] == l {
		delete(t.byChannel, channel)
		t.noteChange()
	}
}

func (t *topics) noteChange() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// begin returns the names of the channels for a new subscription, sorted.
func (t *topics) begin() []string {
	t.mu.Lock()
	clear(t.confirmed)
	t.mu.Unlock()
	return t.channels()
}

// channels returns the names of the channels, sorted.
func (t *topics) channels() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.byChannel))
}

// up notes that the subscription has a channel, for the first time or again.
func (t *topics) up(channel string) {
	t.mu.Lock()
	t.confirmed[channel] = true
	l, ok := t.byChannel[channel]
	t.mu.Unlock()
	if ok {
		l.Listening()
	}
}

// down notes that the subscription has a channel no more.
func (t *topics) down(channel string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.confirmed, channel)
}

// heard handles a message.
func (t *topics) heard(channel, message string) {
	t.mu.Lock()
	l, ok := t.byChannel[channel]
	t.mu.Unlock()
	if ok && len(message) <= driver.MaxGossip {
		l.Heard([]byte(message))
	}
}

// Listen adds a topic to the session's subscription, or to what it will subscribe to.
func (s *session) Listen(topic string, l driver.Listener) (stop func()) {
	channel := topicChannel(s.database, topic)
	s.listener.topics.add(channel, &l)
	return func() { s.listener.topics.remove(channel, &l) }
}

// Tell publishes a message.
func (s *session) Tell(ctx context.Context, topic string, message []byte) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	s.listener.ensure()
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silence(s.timeout))
	defer cancel()
	told := make(chan error, 1)
	// The client library may wait for a socket for longer than ctx lasts.
	if !s.Start(func() { told <- s.listener.wire.tell(ctx, topicChannel(s.database, topic), message) }) {
		return driver.ErrClosed
	}
	select {
	case err := <-told:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Closing:
		return driver.ErrClosed
	}
}
