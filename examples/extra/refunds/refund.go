package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/queue"
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
	if run, ok := decorator.RunFrom(ctx); ok {
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

// serial puts a queue before the provider.
func serial(d driver.Driver, namespace string, store queue.Store, p *provider, limit time.Duration) (*core.Engine, *decorator.SerialFunc[Refund], error) {
	locks, err := core.New(d, core.WithNamespace(namespace), core.WithLogger(slog.New(slog.DiscardHandler))) // the dead would have much to say
	if err != nil {
		return nil, nil, err
	}
	refunds, err := decorator.NewSerial(locks, core.Policy{Name: namespace, Key: "refund:{OrderID}", TTL: ttl}, store, p.Refund,
		decorator.SerialPolicy{Spacing: limit, OnDead: decorator.Hold})
	return locks, refunds, err
}
