package etcdlock

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's use of the cluster.
type session struct {
	client   *clientv3.Client
	sink     driver.Sink
	timeout  time.Duration // of one request with its retries
	identity string

	claims   claims
	refusals refusals
	spares   spares
	hidden   hiddenHolders
	endings  endings
	pace     pace
	begun    begun

	keepAlives keepAlives

	mu            sync.Mutex
	aliveKeyLease etcdLease // of leaseForAliveKeys

	*kit.Life
	debts *kit.Debts[*debt]
}

// debt is what was given up and must be cleaned up at etcd: a place, and etcd leases with
// all keys on them. Revoking a lease also defeats a late request that would still put a key
// on it.
type debt struct {
	leases    []clientv3.LeaseID
	spare     etcdLease // to be reused when the place is gone; its id is 0 if there is none
	place     string    // to delete; "" is none
	used      bool      // places were on the leases: their alive keys must outlast them
	contended string    // a key to write, on one of the leases, before it is revoked; "" is none
	due       time.Time // the key is kept until then; zero: clean up at once
	done      func()    // called at the end; may be nil

	foreign *driver.Ending // a lease of another session, to be found and deleted; nil is none
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
