package kit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// timeout is an attempt's time at the store.
const timeout = time.Second

var (
	errLost    = errors.New("the reply was lost")
	errRefused = &driver.PermanentError{Err: errors.New("no right to do that")}
)

// fault is what becomes of one request to the store.
type fault int

const (
	works   fault = iota
	loses         // it is executed, and the reply is lost
	fails         // it is not executed
	hangs         // it is not executed, nothing is answered until the attempt's time is over
	refuses       // it is not executed, and never will be
)

// store is a store that forgets an owner ttl after the request that made it, as a store
// does by itself, and whose requests have the faults that it is told to have.
type store struct {
	mu     sync.Mutex
	owners map[string]time.Time // when the store forgets them
	plan   []fault              // of the next requests; then then
	then   fault

	over  map[string][]time.Time // when an owner's debt was over
	asked []asked
	under int // requests that are under way
	most  int // of them at a time
	takes time.Duration
}

// asked is one request to end an owner.
type asked struct {
	owner string
	at    time.Time
}

func newStore(plan ...fault) *store {
	return &store{owners: make(map[string]time.Time), over: make(map[string][]time.Time), plan: plan}
}

// create lets an owner exist for ttl.
func (s *store) create(owner string, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[owner] = time.Now().Add(ttl)
}

// has reports whether an owner exists.
func (s *store) has(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.owners[owner])
}

// end ends an owner, for an attempt's time at most.
func (s *store) end(ctx context.Context, owner string) error {
	s.mu.Lock()
	s.asked = append(s.asked, asked{owner, time.Now()})
	s.under++
	s.most = max(s.most, s.under)
	f := s.then
	if len(s.plan) > 0 {
		f, s.plan = s.plan[0], s.plan[1:]
	}
	takes := s.takes
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.under--
	}()
	if f == hangs {
		takes = timeout
	}
	if !Sleep(ctx, takes) {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f {
	case works:
		delete(s.owners, owner)
		return nil
	case loses:
		delete(s.owners, owner)
		return errLost
	case refuses:
		return errRefused
	case hangs:
		return &SilenceError{Store: "test", After: timeout}
	}
	return errLost
}

// times returns how long after begin each request came that was to end owner.
func (s *store) times(owner string, begin time.Time) (ds []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if a.owner == owner {
			ds = append(ds, a.at.Sub(begin))
		}
	}
	return ds
}
