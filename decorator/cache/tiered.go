package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"
)

// Announcer tells of what changes in a store, whoever has changed it.
type Announcer interface {
	// Listen calls up when it has begun to hear of every change, and changed with the
	// key of every value that is put or invalidated from then on, before or after the
	// change is answered. It blocks until ctx ends, or until it has to assume that it
	// does not hear of changes any more, and returns why. If up is called again,
	// changes may have been missed before. Both are called by one goroutine at a time,
	// and return at once.
	Listen(ctx context.Context, up func(), changed func(key string)) error
}

// Remote is a store that a [Tiered] can have copies of.
type Remote interface {
	Store
	Announcer
}

// Tiered is a store with a level of copies in this process before it. A value that is
// there costs no round trip. It is safe for concurrent use.
//
// The remote store pushes what changes, and the copy goes. Claims and what is put go to
// the remote store only, so that its guarantees are those of Tiered but for Get:
//
//   - In the process that has invalidated a key, or put a value, no Get that begins
//     after that has returned finds an older one.
//   - In other processes a Get may find the old value for as long as the push travels.
//     A push that is lost though the connection seems to work, as in a failover, leaves
//     it there until its copy is as old as [WithMaxAge] says, and so does what removes
//     values without a push, such as FLUSHALL.
//   - While the subscription is down, or not confirmed yet, nothing is read from the
//     copies nor kept as one: Get asks the remote store.
type Tiered struct {
	remote Remote
	maxAge time.Duration

	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	copies lru[local]
	err    error // why the copies are not in use, nil if they are
	// moments count what may have outdated a value that is being read from the remote
	// store: changes of keys with the same hash, and of the subscription.
	moments [256]uint64
	seed    maphash.Seed
}

var _ Store = (*Tiered)(nil)

// local is a copy of a value.
type local struct {
	value []byte    // never written to
	end   time.Time // of the value, at the remote store
	until time.Time // of this copy: end, or when it is too old
}

// TieredOption changes how a [Tiered] works. Nil does nothing.
type TieredOption func(*Tiered) error

// WithMaxAge sets for how long a copy may be used, if the value lives that long. It bounds
// what a lost push does. The default is a minute; less than [MinTTL] is an error.
func WithMaxAge(d time.Duration) TieredOption {
	return func(t *Tiered) error {
		if d < MinTTL {
			return fmt.Errorf("cache: WithMaxAge(%v): use at least %v; for no copies, leave Tiered out", d, MinTTL)
		}
		t.maxAge = d
		return nil
	}
}

var (
	errConnecting = errors.New("cache: the subscription to changes has not been confirmed yet")
	errEnded      = errors.New("cache: the subscription to changes has ended")
	errClosed     = errors.New("cache: closed")
)

// NewTiered returns a store that keeps copies of remote's values within the limits. It
// subscribes in a goroutine, until [Tiered.Close]; the remote store stays the caller's.
func NewTiered(copies Limits, remote Remote, o ...TieredOption) (*Tiered, error) {
	if err := copies.validate(); err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(remote); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("cache: the remote store is nil; pass one that announces changes, such as rediscache's")
	}
	t := &Tiered{remote: remote, maxAge: time.Minute, copies: newLRU[local](copies), err: errConnecting, seed: maphash.MakeSeed()}
	for _, option := range o {
		if option == nil {
			continue
		}
		if err := option(t); err != nil {
			return nil, err
		}
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.all.Go(t.listen)
	return t, nil
}

// Get returns the copy of this process, and without one what the remote store has.
func (t *Tiered) Get(ctx context.Context, key string) (Entry, error) {
	now := time.Now()
	c, moment := t.look(key, now)
	if c.value != nil {
		return entry(c.value, c.end, now), nil
	}
	e, err := t.remote.Get(ctx, key)
	if err == nil && e.Value != nil {
		t.keep(key, e, now, moment)
	}
	return e, err
}

// Claim is the remote store's.
func (t *Tiered) Claim(ctx context.Context, key string, token int64, ttl time.Duration) (Entry, error) {
	defer t.changed(key)
	return t.remote.Claim(ctx, key, token, ttl)
}

// Put is the remote store's.
func (t *Tiered) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	defer t.changed(key) // after it has been done, or a Get meanwhile could bring the old value back
	return t.remote.Put(ctx, key, token, value, ttl)
}

// Invalidate is the remote store's. Whatever it returns, the copy of this process is gone;
// after an error other processes may have theirs still.
func (t *Tiered) Invalidate(ctx context.Context, key string) error {
	defer t.changed(key) // as in Put
	return t.remote.Invalidate(ctx, key)
}

// Err returns nil if the copies are in use, and why they are not otherwise: for metrics,
// since a Tiered without them works, only slower.
func (t *Tiered) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Close ends the subscription and waits for its goroutine. What is called later goes to
// the remote store. A second Close does nothing. The error is nil.
func (t *Tiered) Close() error {
	t.stop()
	t.all.Wait()
	return nil
}

// look returns the copy of a key, if there is one to be used, and the moment of this look.
func (t *Tiered) look(key string, now time.Time) (local, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.copies.get(key); c != nil {
		if now.Before(c.until) {
			return *c, 0
		}
		t.copies.drop(key)
	}
	return local{}, t.moments[t.lot(key)]
}

// keep makes a copy of what was read from the remote store since the look at that time
// and moment, unless the key may have changed since then.
func (t *Tiered) keep(key string, e Entry, looked time.Time, moment uint64) {
	// Left is from some moment after the look; from now on would be too long.
	c := local{value: bytes.Clone(e.Value), end: looked.Add(e.Left)}
	c.until = c.end
	if oldest := looked.Add(t.maxAge); oldest.Before(c.until) {
		c.until = oldest
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && t.moments[t.lot(key)] == moment {
		t.copies.set(key, c, len(c.value))
	}
}

// lot is where the moments of a key are counted.
func (t *Tiered) lot(key string) uint64 {
	return maphash.String(t.seed, key) % uint64(len(t.moments))
}

// changed drops the copy of a key, and what is being read of it.
func (t *Tiered) changed(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moments[t.lot(key)]++
	t.copies.drop(key)
}

// set notes the state of the subscription. Every change of it empties the copies:
// before one that has come up, pushes were lost.
func (t *Tiered) set(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	for i := range t.moments {
		t.moments[i]++
	}
	t.copies.clear()
}

// The pause between two attempts to subscribe, on average.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 3 * time.Second
)

// listen keeps the subscription.
func (t *Tiered) listen() {
	defer t.set(errClosed) // also if the remote store ends the goroutine
	pause := firstPause
	for t.ctx.Err() == nil {
		err := t.hear(func() {
			pause = firstPause
			t.set(nil)
		})
		if err == nil {
			err = errEnded
		}
		t.set(err)
		timer := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(pause)))
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, maxPause)
	}
}

// hear hears of changes until it does not any more, and returns why.
func (t *Tiered) hear(up func()) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("cache: the remote store panicked: %v", fault)
		}
	}()
	return t.remote.Listen(t.ctx, up, t.changed)
}
