package memlock

import (
	"hash/maphash"
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
