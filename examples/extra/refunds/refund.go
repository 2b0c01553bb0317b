package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// Refund is what clients ask for.
type Refund struct {
	OrderID string
	Number  int // of the refunds of its order, in the order in which they were asked for
}

// event is the beginning or the end of a refund at the provider.
type event struct {
	Refund
	Worker string
	Begins bool
	At     time.Time
}

// provider is what pays money back, called by a worker.
type provider struct {
	worker string
	takes  time.Duration
	tell   func(event)
}

// Refund pays back. A worker that dies meanwhile has paid nothing.
func (p *provider) Refund(ctx context.Context, r Refund) error {
	began := time.Now()
	if run, ok := serial.RunFrom(ctx); ok {
		began = run.Started // a busy machine may come here later
	}
	p.tell(event{r, p.worker, true, began})
	select {
	case <-time.After(p.takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p.tell(event{r, p.worker, false, time.Now()})
	return nil
}

// newRefunds puts a queue before the provider.
func newRefunds(d driver.Driver, namespace string, store queue.Store, p *provider, limit time.Duration) (*core.Engine, *serial.Func[Refund], error) {
	locks, err := core.New(d, core.WithNamespace(namespace), core.WithLogger(slog.New(slog.DiscardHandler))) // the dead would have much to say
	if err != nil {
		return nil, nil, err
	}
	refunds, err := serial.New(locks, core.Policy{Name: namespace, Key: "refund:{OrderID}", TTL: ttl}, store, p.Refund,
		serial.Policy{Spacing: limit, OnDead: serial.Hold})
	return locks, refunds, err
}
