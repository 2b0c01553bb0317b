package etcdlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's use of the cluster.
type session struct {
	d       *Driver
	sink    driver.Sink
	timeout time.Duration // of one request with its retries

	claims   claims
	refusals refusals
	spares   spares
	hidden   hiddenHolders

	mu            sync.Mutex
	aliveKeyLease etcdLease // of leaseForAliveKeys

	*kit.Life
	debts *kit.Debts[*debt]
}

func newSession(d *Driver, c driver.Config) *session {
	s := &session{d: d, sink: c.Sink, timeout: c.StoreTimeout, Life: kit.NewLife("etcd", "the server")}
	s.claims.init(d.grants)
	s.debts = kit.NewDebts[*debt](s.Life, cleaners)
	return s
}

// Close ends the session. Leases that were granted stay until they expire.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		s.claims.close()
		s.revokeSpares()
		return s.debts.Drain(ctx)
	}, nil)
}

// enter begins a call of one of the session's methods; leave ends it. The returned context
// also ends when the session is closed.
func (s *session) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if err := s.Enter(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Open, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		s.Leave()
	}, nil
}

// maxParallel bounds the concurrent requests of one call.
const maxParallel = 64

// each calls do for 0 to n-1 concurrently, and waits for all.
func each(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}
