package memlock

import (
	"bytes"
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// minTTL is the same as that of Redis, so that a policy which works here
	// works there. It leaves 7.9 ms after the deadline's margin.
	minTTL = 10 * time.Millisecond

	// wake bounds how late a timer runs. Wake-ups do not get lost.
	wake = 10 * time.Millisecond

	// shards is the number of independently locked parts of the key space: a
	// power of two, several times the processors that a lock can keep busy.
	shards = 32
)

// Driver is a store in memory. It is safe for concurrent use.
type Driver struct {
	clock *Clock // nil: time.Now
	seed  maphash.Seed
	fault atomic.Pointer[fault] // nil: the store works
	epoch time.Time             // by the store's clock

	topics topics

	expiring sync.Mutex // held by Expire while it tells the holder
	shard    [shards]shard
}

// Option configures a Driver.
type Option interface{ apply(*Driver) }

type option func(*Driver)

func (o option) apply(d *Driver) { o(d) }

// WithClock sets the store's clock, by which leases expire. The default, also
// for nil, is the process's clock.
//
// As with a store on another machine it is not the holder's clock: deadlines of
// leases come from time.Now, and a holder whose lease has expired because the
// store's clock was advanced learns it from its next renewal or check. On a
// clock that stands still, leases whose holders are gone never expire.
func WithClock(c *Clock) Option {
	return option(func(d *Driver) { d.clock = c })
}

// New returns an empty store. Nil options are ignored.
func New(opts ...Option) *Driver {
	d := &Driver{seed: maphash.MakeSeed()}
	for _, o := range opts {
		if o != nil {
			o.apply(d)
		}
	}
	d.epoch = d.storeTime(time.Now())
	first := max(0, d.epoch.UnixMicro())
	for i := range d.shard {
		d.shard[i].d = d
		d.shard[i].token = first
	}
	return d
}

// Capabilities says what the store offers.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:   "memory",
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: minTTL,
		Tokens: driver.ClockTokens,
		Strict: true,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Bounds: true,
		After:  true,
		Wake:   wake,

		Identity: true,
		Trace:    true,
	}
}

// Open starts a session, which models one process.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	return &session{d: d, sink: c.Sink, timeout: c.StoreTimeout, identity: c.Identity, done: make(chan struct{})}, nil
}

// of returns the shard of a key.
func (d *Driver) of(key string) *shard {
	return &d.shard[maphash.String(d.seed, key)%shards]
}

// storeTime is the store's time at the process's time t, which is at most
// little ago. A time that is too early delays an expiry and shortens a lease,
// which is safe.
func (d *Driver) storeTime(t time.Time) time.Time {
	if d.clock == nil {
		return t
	}
	return d.clock.Now()
}

// after calls f when the store's clock shows t.
func (d *Driver) after(t, now time.Time, f func()) (stop func()) {
	if d.clock == nil {
		timer := time.AfterFunc(t.Sub(now), f)
		return func() { timer.Stop() }
	}
	return d.clock.at(t, f)
}

// Clock is a store's clock that a test moves by hand. It is safe for concurrent
// use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []*alarm // in the order in which they are due
}

type alarm struct {
	due  time.Time
	ring func()
}

// NewClock returns a clock that shows start and stands still.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on in one jump. When it returns, leases that have
// expired by then are granted to those who waited for them. A negative d does
// nothing: the clock never goes back.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		return
	}
	c.mu.Lock()
	c.now = c.now.Add(d)
	n := 0
	for n < len(c.alarms) && !c.alarms[n].due.After(c.now) {
		n++
	}
	due := slices.Clone(c.alarms[:n])
	c.alarms = slices.Delete(c.alarms, 0, n)
	c.mu.Unlock()
	for _, a := range due {
		a.ring()
	}
}

// at calls ring once the clock shows t, never before at returns.
func (c *Clock) at(t time.Time, ring func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.After(c.now) {
		go ring()
		return func() {}
	}
	a := &alarm{due: t, ring: ring}
	i, _ := slices.BinarySearchFunc(c.alarms, t, func(a *alarm, t time.Time) int { return a.due.Compare(t) })
	c.alarms = slices.Insert(c.alarms, i, a)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.alarms, a); i >= 0 {
			c.alarms = slices.Delete(c.alarms, i, i+1)
		}
	}
}

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
