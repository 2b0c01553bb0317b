package memlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// errAgain says that the store began or ceased to misbehave meanwhile.
var errAgain = errors.New("ask again")

// errExpired is why a lease ended by Expire is lost.
var errExpired = fmt.Errorf("expired by memlock.Driver.Expire: %w", driver.ErrNotHeld)

// fault is a way in which the store misbehaves.
type fault struct {
	err   error         // nil: the store does not answer
	ended chan struct{} // closed when something else holds
}

// Fail makes every call to the store fail with err, as if the store could not
// be reached, until [Driver.Heal]. Calls that wait for a key fail at once. Leases
// go on until they expire. A [*driver.PermanentError] makes it a store that
// refuses. A nil err heals.
func (d *Driver) Fail(err error) {
	if err == nil {
		d.Heal()
		return
	}
	d.set(&fault{err: err, ended: make(chan struct{})})
	d.withdrawAll(err, func(*waiter) bool { return true })
}

// Stall makes the store silent until [Driver.Heal]: a call ends with its
// context, or with an error at the engine's store timeout, and who waits for a
// key goes on waiting. Leases expire meanwhile.
func (d *Driver) Stall() {
	d.set(&fault{ended: make(chan struct{})})
}

// Heal ends what Fail or Stall began.
func (d *Driver) Heal() {
	d.set(nil)
	m := d.instantOf(time.Now())
	for i := range d.shard {
		sh := &d.shard[i]
		sh.mu.Lock()
		for _, w := range sh.waiting {
			if l := sh.find(w.id.Key, m); l != nil {
				sh.watch(l, m)
			}
		}
		sh.mu.Unlock()
	}
}

func (d *Driver) set(f *fault) {
	if old := d.fault.Swap(f); old != nil {
		close(old.ended)
	}
}

// suffer returns the error of a store that fails, and waits out one that stalls.
func (s *session) suffer(ctx context.Context, f *fault) error {
	timeout := time.NewTimer(s.timeout)
	defer timeout.Stop()
	for f != nil {
		if f.err != nil {
			return f.err
		}
		select {
		case <-f.ended:
			f = s.d.fault.Load()
		case <-s.done:
			return driver.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("memory store did not answer within %v", s.timeout)
		}
	}
	return nil
}

// withdrawAll ends the waiters that which picks.
func (d *Driver) withdrawAll(err error, which func(*waiter) bool) {
	m := d.instantOf(time.Now())
	for i := range d.shard {
		sh := &d.shard[i]
		var tell sessions
		sh.mu.Lock()
		for _, w := range sh.waiting {
			if which(w) {
				tell = append(tell, sh.withdraw(w, err, m)...)
			}
		}
		sh.mu.Unlock()
		tell.deliver()
	}
}

// Expire ends all leases of a key at the store, so that a test can see what a
// program does about a lock that it has lost. It returns false if the key is
// not taken.
//
// A store whose lease has merely run out tells nobody. Here the holder is told,
// before Expire returns and before anybody else is granted the key: its context
// is cancelled at once.
//
// The key is the one that the store sees. That of an engine with a namespace is
// the namespace, a slash and the rendered key, as "shop/stock:42".
func (d *Driver) Expire(key string) bool {
	d.expiring.Lock()
	defer d.expiring.Unlock()
	m := d.instantOf(time.Now())
	sh := d.of(key)
	sh.mu.Lock()
	l := sh.find(key, m)
	if l == nil {
		sh.mu.Unlock()
		return false
	}
	var lost []held
	for i := range l.holders {
		if h := &l.holders[i]; h.s != nil {
			lost = append(lost, *h)
			sh.ended.add(h.owner, over)
			// Until the holder knows, its place stays taken by nobody.
			h.s, h.owner, h.expires = nil, driver.Owner{}, m.store.Add(24*time.Hour)
		}
	}
	sh.mu.Unlock()
	for _, h := range lost {
		h.s.sink.Lost(driver.ID{Key: key, Owner: h.owner}, errExpired)
	}
	sh.mu.Lock()
	if sh.keys[key] == l {
		l.holders = slices.DeleteFunc(l.holders, func(h held) bool { return h.s == nil })
		sh.pass(l, d.instantOf(time.Now()))
	}
	sh.mu.Unlock()
	return true
}
