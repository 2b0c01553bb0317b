package manager

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

var (
	errNoRoute   = errors.New("the request was lost")
	errLostReply = errors.New("the reply was lost")
)

// farStore is a store at a distance that varies. Some requests and some replies are lost.
type farStore struct {
	driver.Driver
	seed   uint64
	oneWay time.Duration // at most
	faults float64       // share of requests and of replies
	prompt bool          // its sessions are
	look   func()        // is called whenever something may have changed
}

func (f *farStore) Open(c driver.Config) (driver.Session, error) {
	s, err := f.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	f.seed++
	far := &farSession{Session: s, farStore: f, rand: rand.New(rand.NewPCG(f.seed, 2))}
	if f.prompt {
		return promptFarSession{far}, nil
	}
	return far, nil
}

type farSession struct {
	driver.Session
	*farStore
	mu       sync.Mutex
	rand     *rand.Rand
	cleaning sync.WaitGroup
}

// travel takes as long as one way to the store, and reports whether the message arrives.
func (s *farSession) travel(ctx context.Context) bool {
	s.mu.Lock()
	d, lost := time.Duration(s.rand.Int64N(int64(s.oneWay))), s.rand.Float64() < s.faults
	s.mu.Unlock()
	s.look()
	defer s.look()
	if d == 0 {
		// Not by a timer: Go 1.26's race detector crashes when two that are due at once are read
		// in one bubble, see https://go.dev/issue/78156.
		runtime.Gosched()
		return !lost && ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return !lost
}

// endLater ends the owner of a request whose reply was lost.
func (s *farSession) endLater(id driver.ID) {
	s.cleaning.Go(func() {
		s.travel(context.Background())
		s.Session.Release(context.Background(), []driver.Ending{{ID: id}})
		s.look()
	})
}

func (s *farSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if !s.travel(ctx) {
		if r.Replace != nil {
			s.endLater(r.Replace.ID)
		}
		return driver.Grant{}, errNoRoute
	}
	g, err := s.Session.Acquire(ctx, r)
	s.look()
	if err == nil && !s.travel(ctx) {
		s.endLater(g.ID)
		return driver.Grant{}, errLostReply
	}
	return g, err
}

func (s *farSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.travel(ctx)
	return s.Session.Renew(ctx, rs)
}

func (s *farSession) Release(ctx context.Context, es []driver.Ending) []error {
	errs := make([]error, len(es))
	if s.travel(ctx) {
		errs = s.Session.Release(ctx, es)
		if s.travel(ctx) {
			return errs
		}
	}
	for i := range errs {
		errs[i] = errLostReply
	}
	return errs
}

func (s *farSession) Close(ctx context.Context) error {
	s.cleaning.Wait()
	return s.Session.Close(ctx)
}

// promptFarSession answers on the goroutine of its caller.
type promptFarSession struct{ *farSession }

func (s promptFarSession) Begin(r driver.Request, now time.Time) (driver.Grant, bool, error) {
	if !s.travel(context.Background()) {
		return driver.Grant{}, false, nil
	}
	g, done, err := s.Session.(driver.Prompt).Begin(r, now)
	if !s.travel(context.Background()) {
		return driver.Grant{}, false, nil // Acquire learns what became of it
	}
	return g, done, err
}

func (s promptFarSession) End(driver.Ending, time.Time) (bool, error) { return false, nil }
