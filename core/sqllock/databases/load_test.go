package databases_test

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

// process is a session as one process of several would have it.
type process struct {
	driver.Session
	*sink
}

// sink records what a session is told.
type sink struct {
	queued chan driver.ID
	mu     sync.Mutex
	lost   int
}

func (s *sink) Waiting(id driver.ID) {
	select {
	case s.queued <- id:
	default:
	}
}

func (*sink) Contended(driver.ID, bool) {}

func (s *sink) Lost(driver.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

const (
	// patience ends what is expected to happen, and never does. It is no promise.
	patience = 2 * time.Minute

	// storeTimeout is longer than a busy machine lets a server be silent.
	storeTimeout = 30 * time.Second

	// hold is the TTL of leases that are released. Nobody waits for its end.
	hold = 10 * time.Minute
)

func open(t testing.TB, locks driver.Driver) *process {
	t.Helper()
	s := &sink{queued: make(chan driver.ID, 64)}
	session, err := locks.Open(driver.Config{Sink: s, StoreTimeout: storeTimeout})
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
	return driver.Request{ID: driver.ID{Key: key, Owner: owner()}, TTL: hold, Wait: wait}
}

func ending(g driver.Grant) driver.Ending {
	return driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}
}

// claim is the time in which a process may believe that it holds a key.
type claim struct {
	from, to time.Time
	token    int64
}

// claims are those of all keys.
type claims struct {
	mu  sync.Mutex
	all map[string][]claim
}

// count returns how many there are.
func (c *claims) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, all := range c.all {
		n += len(all)
	}
	return n
}

// add adds one, unless it was over when it began.
func (c *claims) add(g driver.Grant, from, to time.Time) {
	if g.Deadline.Before(to) {
		to = g.Deadline
	}
	if !from.Before(to) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string][]claim)
	}
	c.all[g.Key] = append(c.all[g.Key], claim{from, to, g.Token})
}

// verify fails the test if two claims of a key overlap or their tokens do not rise. It
// returns how many there are.
func (c *claims) verify(t testing.TB) (n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, all := range c.all {
		slices.SortFunc(all, func(a, b claim) int { return a.from.Compare(b.from) })
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

// load has callers of several processes take and release keys until ctx ends. Whatever
// fails they ask anew.
func load(ctx context.Context, all *claims, processes []*process, callers int, key func(caller, round int) string) {
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
					<-time.After(time.Millisecond) // in which a second holder would show
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

// fewKeys are shared by all callers.
func fewKeys(caller, round int) string { return fmt.Sprint("key ", (caller+round)%3) }
