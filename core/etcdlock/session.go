package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's use of the cluster.
type session struct {
	d       *Driver
	sink    driver.Sink
	timeout time.Duration // of one request, with its repetitions

	claims   claims
	refusals refusals
	spares   spares
	doubts   doubts

	mu    sync.Mutex
	lulls term // the latest lease of outlasting

	*kit.Life
	debts *kit.Debts[*debt]
}

func newSession(d *Driver, c driver.Config) *session {
	s := &session{d: d, sink: c.Sink, timeout: c.StoreTimeout, Life: kit.NewLife("etcd", "the server")}
	s.claims.init(d.grants)
	s.debts = kit.NewDebts[*debt](s.Life, cleaners)
	return s
}

// enter begins a method's call, which ends with leave. The context returned also ends
// when the session is closed.
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

// Close ends the session. Leases that were granted stay until they expire.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		s.claims.abandon()
		s.giveUpSpares()
		return s.debts.Drain(ctx)
	}, nil)
}

// giveUpSpares ends the leases that were kept for places to come.
func (s *session) giveUpSpares() {
	left := s.spares.close()
	for batch := range slices.Chunk(left, 64) {
		d, longest := debt{used: true}, int64(0)
		for _, t := range batch {
			d.leases, longest = append(d.leases, t.id), max(longest, t.seconds)
		}
		s.owe(d, inSeconds(longest))
	}
}
