package sqllock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// process is a session that stands for one of several processes.
type process struct {
	driver.Session
	*sink
}

// sink records a session's events.
type sink struct {
	queued    chan driver.ID
	mu        sync.Mutex
	lost      int
	contended bool // what was told last
}

func (s *sink) Waiting(id driver.ID) {
	select {
	case s.queued <- id:
	default:
	}
}

func (s *sink) Contended(_ driver.ID, waiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contended = waiting
}

func (s *sink) Lost(driver.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

const (
	// patience ends waits for events that should have happened long before.
	patience = 2 * time.Minute

	// storeTimeout is longer than a server on a busy machine takes to answer.
	storeTimeout = 30 * time.Second

	// longTTL is the TTL of leases that the test releases. No test waits for it to pass.
	longTTL = 10 * time.Minute
)

func open(t testing.TB, locks driver.Driver) *process {
	t.Helper()
	return openWith(t, locks, storeTimeout)
}

// openWith is open with another time-out for the server's answers.
func openWith(t testing.TB, locks driver.Driver, timeout time.Duration) *process {
	t.Helper()
	s := &sink{queued: make(chan driver.ID, 64)}
	session, err := locks.Open(driver.Config{Sink: s, StoreTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	p := &process{session, s}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close a session: %v", err)
		}
	})
	return p
}

func owner() (o driver.Owner) {
	_, _ = rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

func request(key string, wait bool) driver.Request {
	return driver.Request{ID: driver.ID{Key: key, Owner: owner()}, TTL: longTTL, Wait: wait}
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
}

// interval is the time in which a process may believe that it holds a key.
type interval struct {
	from, to time.Time
	token    int64
}

// intervals are those of all keys.
type intervals struct {
	mu  sync.Mutex
	all map[string][]interval
}

// len returns how many there are.
func (c *intervals) len() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.all {
		n += len(all)
	}
	return n
}

// add adds an interval, unless it ends before it begins.
func (c *intervals) add(g driver.Grant, from, to time.Time) {
	if g.Deadline.Before(to) {
		to = g.Deadline
	}
	if !from.Before(to) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string][]interval)
	}
	c.all[g.Key] = append(c.all[g.Key], interval{from, to, g.Token})
}

// verify fails the test if two intervals of a key overlap or their tokens do not rise. It
// returns how many intervals there are.
func (c *intervals) verify(t testing.TB) (n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, all := range c.all {
		slices.SortFunc(all, func(a, b interval) int { return a.from.Compare(b.from) })
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			if b.from.Before(a.to) {
				t.Errorf("%s was held twice, for %v (tokens %d and %d)", key, a.to.Sub(b.from), a.token, b.token)
			}
			if b.token <= a.token {
				t.Errorf("%s: token %d was granted after token %d", key, b.token, a.token)
			}
		}
		n += len(all)
	}
	return n
}

// load runs callers in several processes, which take and release keys until ctx ends. After
// an error a caller tries again.
func load(ctx context.Context, all *intervals, processes []*process, callers int, key func(caller, round int) string) {
	var running sync.WaitGroup
	for _, p := range processes {
		for c := range callers {
			running.Go(func() {
				for round := 0; ctx.Err() == nil; round++ {
					g, err := p.Acquire(ctx, request(key(c, round), true))
					if err != nil {
						continue
					}
					from := time.Now()
					<-time.After(time.Millisecond) // long enough for a second holder to overlap
					to := time.Now()
					// A release is repeated until it is answered.
					err = errors.New("not yet")
					for tries := 0; err != nil && !errors.Is(err, driver.ErrNotHeld) && tries < 50; tries++ {
						err = p.Release(context.WithoutCancel(ctx), []driver.Ending{ending(g)})[0]
					}
					all.add(g, from, to)
				}
			})
		}
	}
	running.Wait()
}

// fewKeys returns keys that all callers share.
func fewKeys(caller, round int) string { return fmt.Sprint("key ", (caller+round)%3) }
