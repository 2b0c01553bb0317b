package endurance

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
)

// engine makes an engine, which ends with the lane. All of a lane exclude each other.
func (l *lane) engine(d driver.Driver) *core.Engine {
	l.t.Helper()
	e, err := core.New(d, core.WithNamespace(l.space), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		l.t.Fatalf("make an engine: %v", err)
	}
	l.t.Cleanup(func() { _ = e.Close() }) // says so if it could not tell the store everything
	return e
}

// each runs do for 0 to n-1, all at once, and waits for them.
func each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// rounds splits n instances into rounds of at most size, which take place one after the
// other and end when the test has failed.
func (l *lane) rounds(n, size int, round func(round, size int)) {
	for i := 0; n > 0 && !l.t.Failed(); i++ {
		k := min(n, size)
		round(i, k)
		if !l.t.Failed() {
			l.tried(k)
		}
		n -= k
	}
}

// hold is a lease of an engine, and the claim to it.
type hold struct {
	*core.Lease
	claim *claim
	back  time.Time // when the acquire had returned
}

// hold takes a key, for which it waits.
func (l *lane) hold(e *core.Engine, key string, ttl time.Duration) (*hold, error) {
	ctx, cancel := l.patient()
	defer cancel()
	return l.holdWithin(ctx, e, core.Policy{Key: key, TTL: ttl, Wait: core.Forever})
}

func (l *lane) holdWithin(ctx context.Context, e *core.Engine, p core.Policy) (*hold, error) {
	lease, err := e.Acquire(ctx, p)
	back := time.Now()
	if err != nil {
		return nil, err
	}
	return &hold{Lease: lease, claim: l.claims.begin(p.Key, lease.Token(), back, lease.Deadline()), back: back}, nil
}

// release ends the claim and releases the lease.
func (l *lane) release(h *hold) error {
	l.claims.extend(h.claim, h.Deadline()) // as renewals have moved it
	l.claims.end(h.claim)
	ctx, cancel := l.patient()
	defer cancel()
	return h.Release(ctx)
}

// leave releases a lease that must be held.
func (l *lane) leave(h *hold, what string) {
	l.t.Helper()
	if err := l.release(h); err != nil && !errors.Is(err, core.ErrUnavailable) { // it goes on in the background then
		l.t.Errorf("release of %s: %v", what, err)
	}
}

// insist calls do again while the store is too slow to answer, which is no matter of the
// figures. do has a context that ends.
func insist(do func() error) error {
	for {
		if err := do(); !errors.Is(err, core.ErrUnavailable) {
			return err
		}
	}
}

// numbered is a key of which there are several.
func numbered(key string, numbers ...int) string {
	for _, n := range numbers {
		key += ":" + strconv.Itoa(n)
	}
	return key
}
