package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is measured as users have it: by its engine
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue" //nolint:depguard // what is measured
	"github.com/lockaround/lockaround/decorator/serial"           //nolint:depguard // the same
)

// lockaround, everything as it is by default but for telemetry, whose providers keep
// nothing, and the longest queue, which a backlog needs.
type lockaroundQueue struct {
	client *redis.Client
	locks  *core.Engine
	serial *serial.Func[Item]
	ended  chan struct{}
	stop   context.CancelFunc
}

func openLockaround(s Settings, run Run) (_ Queue, err error) {
	q := &lockaroundQueue{client: redis.NewClient(&redis.Options{Addr: s.Addr})}
	defer func() {
		if err != nil {
			q.Close()
		}
	}()
	q.locks, err = core.New(redislock.New(q.client), core.WithNamespace("lab"),
		core.WithTracerProvider(traces.NewTracerProvider()), core.WithMeterProvider(metrics.NewMeterProvider()))
	if err != nil {
		return nil, err
	}
	store, err := redisqueue.New(q.client, "lab:queue:")
	if err != nil {
		return nil, err
	}
	q.serial, err = serial.New(q.locks, core.Policy{Name: "item", Key: "item:{Key}", TTL: s.TTL}, store, run,
		serial.Policy{Workers: s.Workers, MaxLength: 1 << 20})
	if err != nil {
		return nil, err
	}
	return q, nil
}

func (q *lockaroundQueue) Enqueue(ctx context.Context, i Item) error {
	_, err := q.serial.Enqueue(ctx, i)
	return err
}

func (q *lockaroundQueue) Work() error {
	ctx, cancel := context.WithCancel(context.Background())
	q.stop, q.ended = cancel, make(chan struct{})
	go func() {
		defer close(q.ended)
		_ = q.serial.Work(ctx) // until it is cancelled
	}()
	return nil
}

func (q *lockaroundQueue) Close() {
	var errs []error // the process ends, and nothing is held
	if q.stop != nil {
		q.stop()
		select {
		case <-q.ended:
		case <-time.After(time.Second):
		}
	}
	if q.locks != nil {
		errs = append(errs, q.locks.Close())
	}
	_ = errors.Join(append(errs, q.client.Close())...)
}
