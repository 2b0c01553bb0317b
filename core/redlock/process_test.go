package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

const (
	// slack is what real servers may take, beside what the machine oversleeps.
	slack = 1500 * time.Millisecond

	// patience ends a test that would hang, and storeTimeout an attempt. Neither is a
	// promise.
	patience, storeTimeout = 2 * time.Minute, 20 * time.Second

	// ttl is that of leases which end by being released.
	ttl = 5 * time.Minute
)

// noting is a sink that notes lost leases and waiting requests.
type noting struct {
	lost, waiting chan driver.ID
}

func (n noting) Waiting(id driver.ID)       { n.waiting <- id }
func (noting) Contended(driver.ID, bool)    {}
func (n noting) Lost(id driver.ID, _ error) { n.lost <- id }

// peer is a session that stands for a process.
type peer struct {
	driver.Session
	t    testing.TB
	sink noting
}

func join(t testing.TB, nodes []*redis.Client, opts ...Option) *peer {
	t.Helper()
	return open(t, New(nodes, opts...))
}

func open(t testing.TB, d *Driver) *peer {
	t.Helper()
	return openWithin(t, d, storeTimeout)
}

func openWithin(t testing.TB, d *Driver, timeout time.Duration) *peer {
	t.Helper()
	sink := noting{make(chan driver.ID, 64), make(chan driver.ID, 256)}
	s, err := d.Open(driver.Config{Sink: sink, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Close(ctx) // nodes may be gone
	})
	return &peer{s, t, sink}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func request(key string, ttl time.Duration) driver.Request {
	return driver.Request{ID: driver.ID{Key: key, Owner: newOwner()}, TTL: ttl}
}

func (p *peer) try(key string, ttl time.Duration) (driver.Grant, error) {
	return p.Acquire(within(p.t, patience), request(key, ttl))
}

// wait is try for who waits.
func (p *peer) wait(key string, ttl time.Duration) (driver.Grant, error) {
	r := request(key, ttl)
	r.Wait = true
	return p.Acquire(within(p.t, patience), r)
}

func (p *peer) take(key string, ttl time.Duration) driver.Grant {
	p.t.Helper()
	g, err := p.try(key, ttl)
	if err != nil {
		p.t.Fatalf("acquire of a free key: %v", err)
	}
	return g
}

func (p *peer) renew(g driver.Grant, ttl time.Duration) driver.Renewed {
	return p.Renew(within(p.t, patience), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: ttl}})[0]
}

func (p *peer) release(g driver.Grant) error {
	return p.Release(within(p.t, patience), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]
}

// drop releases a lease that must be held.
func (p *peer) drop(g driver.Grant) {
	p.t.Helper()
	if err := p.release(g); err != nil {
		p.t.Fatalf("release: %v", err)
	}
}

// result is how an Acquire ended.
type result struct {
	driver.Grant
	err error
	at  time.Time
}

// queue waits for a key, and returns when the store has said that it is taken.
func (p *peer) queue(key string, ttl time.Duration) <-chan result {
	p.t.Helper()
	done, queued := p.await(key, ttl)
	if !queued {
		res := <-done
		p.t.Fatalf("a key that is held: %v, %v", res.Grant.Token, res.err)
	}
	return done
}

// await waits for a key, and returns when there is a place for it, or a result.
func (p *peer) await(key string, ttl time.Duration) (done chan result, queued bool) {
	p.t.Helper()
	done = make(chan result, 1)
	go func() {
		g, err := p.wait(key, ttl)
		done <- result{g, err, time.Now()}
	}()
	select {
	case <-p.sink.waiting:
		return done, true
	case res := <-done:
		done <- res
	}
	return done, false
}

// rises fails the test if tokens granted one after the other do not rise.
func rises(t testing.TB, tokens ...int64) {
	t.Helper()
	for i, next := range tokens[1:] {
		if next <= tokens[i] {
			t.Errorf("token %d was granted after token %d", next, tokens[i])
		}
	}
}

func isHeld(err error) bool {
	held := new(driver.HeldError)
	return errors.As(err, &held)
}

func isNoMajority(err error) bool {
	none := new(NoMajorityError)
	return errors.As(err, &none)
}

// eventually waits until something holds.
var eventually = testkit.Until
