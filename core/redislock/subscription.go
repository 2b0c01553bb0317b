package redislock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// listener keeps the session's one subscription. It starts with the first Acquire, even one
// that would not wait: the engine hands its lease on among the callers of this process until
// a push says that another process waits.
type listener struct {
	life    *kit.Life // of the session
	wire    wire
	channel string
	topics  *topics
	jitter  func() float64
	onUp    func(again bool)     // called when the subscription is up, for the first time or again
	onPush  func(payload string) // called for each push
	start   sync.Once

	mu          sync.Mutex
	up          bool
	err         error         // why the subscription is down, if it is
	change      chan struct{} // closed and replaced when up or err changes
	resubscribe context.CancelFunc
	reconnect   chan struct{} // closed and replaced when the subscription is up again
	missed      int           // grants in a row that a refresh found and that no push announced
}

func newListener(life *kit.Life, w wire, channel string, jitter func() float64) *listener {
	return &listener{
		life: life, wire: w, channel: channel, topics: newTopics(), jitter: jitter,
		change: make(chan struct{}), reconnect: make(chan struct{}),
	}
}

// ensure starts the listener.
func (l *listener) ensure() {
	l.start.Do(func() { l.life.Start(l.run) })
}

func (l *listener) run() {
	pause := firstPause
	wasUp := false
	for {
		ctx, cancel := context.WithCancel(l.life.Ctx)
		l.mu.Lock()
		l.resubscribe, l.missed = cancel, 0
		l.mu.Unlock()
		worked := false
		err := l.wire.listen(ctx, l.channel, l.topics, func() {
			worked = true
			if wasUp {
				l.noteReconnected()
			}
			l.onUp(wasUp)
			wasUp = true
			l.set(true, nil) // after onUp: once wait returns, the leases are being verified
		}, l.onPush)
		asked := ctx.Err() != nil
		cancel()
		if l.life.Ctx.Err() != nil {
			return
		}
		switch {
		case asked:
			err = nil
		case err == nil:
			err = errors.New("redis: the subscription has ended")
		}
		l.set(false, err)
		if worked {
			pause = firstPause
			if asked {
				continue
			}
		}
		if !kit.Sleep(l.life.Ctx, time.Duration((0.5+l.jitter())*float64(pause))) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// set notes the state of the subscription.
func (l *listener) set(up bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.err = up, err
	close(l.change)
	l.change = make(chan struct{})
}

// wait blocks until the subscription works or has failed, or ctx ends.
func (l *listener) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		up, err, change := l.up, l.err, l.change
		l.mu.Unlock()
		if up || err != nil {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.life.Closing:
			return driver.ErrClosed
		}
	}
}

// noteReconnected makes senders repeat the renewals under way. The fault that broke the
// subscription may have broken their connections too, without an error.
func (l *listener) noteReconnected() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.reconnect)
	l.reconnect = make(chan struct{})
}

// reconnected returns a channel that is closed when the subscription is up again.
func (l *listener) reconnected() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reconnect
}

// noteAnnounced notes that a push has announced a grant.
func (l *listener) noteAnnounced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = 0
}

// noteMissed notes a grant that no push announced. After the second in a row the listener
// subscribes anew: after a failover a subscription can stay with the old master for ever.
func (l *listener) noteMissed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; l.missed >= 2 && l.up {
		l.missed = 0
		l.resubscribe()
	}
}

// listen receives on a subscription with a connection of its own. It returns after the
// second reconnection in a row that fails: the session decides when to try again.
func (w *clientWire) listen(ctx context.Context, channel string, t *topics, up func(), message func(string)) error {
	client, err := w.subscriber(ctx)
	if err != nil {
		return classify(err)
	}
	subscription := client.Subscribe(ctx)
	defer func() { _ = subscription.Close() }() // a second closing only says so
	all := t.begin()
	if err := subscription.Subscribe(ctx, append([]string{channel}, all...)...); err != nil {
		w.reloadAfterSilence([]answer{{err: err}})
		return classify(err)
	}
	var heard atomic.Bool
	var health sync.WaitGroup
	done := make(chan struct{})
	defer health.Wait()
	defer close(done)
	health.Go(func() { w.checkHealth(ctx, subscription, &heard, t, all, done) })

	for failed := false; ; {
		m, err := subscription.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			heard.Store(true)
		case failed || isReply(err) || errors.Is(err, redis.ErrClosed):
			w.reloadAfterSilence([]answer{{err: err}})
			return classify(err)
		default:
			failed = true // Receive has reconnected, or tries when called again
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			switch {
			case m.Kind != "subscribe":
				t.down(m.Channel)
			case m.Channel == channel:
				failed = false
				w.deletes.forget()
				up()
			default:
				t.up(m.Channel)
			}
		case *redis.Message:
			if m.Channel == channel {
				message(m.Payload)
			} else {
				t.heard(m.Channel, m.Payload)
			}
		}
	}
}

// subscriber returns the client to subscribe with. The masters of a Cluster pass messages
// on to each other, so that any of them will do; each call takes another one if it can.
// go-redis by itself would always take the master that has the slot of the channel's name,
// even while that one is dead.
func (w *clientWire) subscriber(ctx context.Context) (redis.UniversalClient, error) {
	if w.cluster == nil {
		return w.client, nil
	}
	const tries = 16
	for i := 1; ; i++ {
		master, err := w.anyMaster(ctx)
		if err != nil {
			return nil, err
		}
		if master != w.subscribed.Load() || i == tries {
			w.subscribed.Store(master)
			return master, nil
		}
	}
}

// anyMaster returns a master of a Cluster, at random.
func (w *clientWire) anyMaster(ctx context.Context) (*redis.Client, error) {
	return w.cluster.MasterForKey(ctx, strconv.Itoa(mathrand.Int()))
}

// tell publishes at any master of a Cluster: each passes it on to the others.
func (w *clientWire) tell(ctx context.Context, channel string, message []byte) error {
	client := w.client
	if w.cluster != nil {
		master, err := w.anyMaster(ctx)
		if err != nil {
			return classify(err)
		}
		client = master
	}
	err := client.Publish(ctx, channel, message).Err()
	w.reloadAfterSilence([]answer{{err: err}})
	return w.classify(err)
}

// follow makes the subscription one to all channels of the topics, instead of those that it was
// to. It returns the new ones.
func (t *topics) follow(ctx context.Context, s *redis.PubSub, were []string) []string {
	all := t.channels()
	without := func(from, what []string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(c string) bool { return slices.Contains(what, c) })
	}
	// Receive sees the broken connection, if it is.
	if more := without(all, were); len(more) > 0 {
		_ = s.Subscribe(ctx, more...)
	}
	if gone := without(were, all); len(gone) > 0 {
		_ = s.Unsubscribe(ctx, gone...)
	}
	return all
}

// checkHealth pings a silent subscription and closes a dead one. The first ping leaves at
// once, so that a missing right to ping shows early. It also follows the topics, of which the
// subscription has all.
func (w *clientWire) checkHealth(ctx context.Context, s *redis.PubSub, heard *atomic.Bool, t *topics, all []string, done <-chan struct{}) {
	tick := time.NewTicker(w.check)
	defer tick.Stop()
	for asked := false; ; {
		if heard.Swap(false) {
			asked = false
		} else if asked {
			_ = s.Close()
			return
		} else {
			_ = s.Ping(ctx) // Receive sees the broken connection, or the pong
			asked = true
		}
		for waits := true; waits; {
			select {
			case <-tick.C:
				waits = false
			case <-t.changed:
				all = t.follow(ctx, s, all)
			case <-ctx.Done():
				_ = s.Close() // ends Receive
				return
			case <-done:
				return
			}
		}
	}
}

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

// Every lease and every place in the queue has the channel of its session's pushes. So the
// channel's name ends with the identity of the session, and the server is told it without a
// field, an argument or a command more.

// ChannelPrefix begins the name of the Pub/Sub channel of every session. Random text follows,
// and a colon and the session's identity, if it has one. Grant a user of an ACL "&la2:*".
const ChannelPrefix = "la2:"

// randomChannel returns the name of a channel that no other session has.
func randomChannel() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return ChannelPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// named returns the name of a channel with the identity of its session.
func named(channel, identity string) string {
	if identity == "" {
		return channel
	}
	return channel + ":" + identity
}

// originOf returns who a script says holds a key. Sessions of releases that did not name their
// channels have no identity.
func originOf(t protocol.Taker) driver.Origin {
	_, identity, _ := strings.Cut(strings.TrimPrefix(t.Channel, ChannelPrefix), ":")
	return driver.Origin{Identity: identity, Trace: driver.ParseTrace(t.Trace)}
}
