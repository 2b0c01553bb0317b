package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/job"
)

// terms are policy and schedule of the report. With a period of 3 s the others have given up
// a tick 1.2 s after it came, within half of the period: 100 ms of skew, a run of 500 ms, and
// twice the TTL.
func terms(period time.Duration) (core.Policy, job.Schedule) {
	return core.Policy{Key: "job:report", TTL: period / 10},
		job.Schedule{Every: period, Skew: period / 30, MaxRun: period / 6, CatchUp: true}
}

// serve is a replica's process, until its input ends.
func serve(ctx context.Context, o options, stdin io.Reader, stdout io.Writer) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.redis})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace(o.namespace))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	if err := locks.Ping(ctx); err != nil {
		return fmt.Errorf("the Redis at %s: %w", o.redis, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &printer{out: stdout, leave: make(chan struct{})}
	policy, schedule := terms(o.period)
	job, err := job.New(locks, policy, p.print, schedule)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready")
	go p.listen(stdin, stop)
	return schedulers[o.scheduler](ctx, o.period, func(ctx context.Context) error {
		tick := time.Now().Round(o.period)
		err := job.Run(context.WithValue(ctx, tickKey{}, tick))
		fmt.Fprintln(stdout, "outcome", tick.Unix(), job.Status().Outcome)
		return err
	})
}

// tickKey is where the context of a run has the time of its tick.
type tickKey struct{}

// printer prints the report, as slowly as the demonstration says.
type printer struct {
	out   io.Writer
	leave chan struct{}
}

// print is the job. It waits for leave in the middle, so that its process can be killed
// there.
func (p *printer) print(ctx context.Context) error {
	tick := ctx.Value(tickKey{}).(time.Time)
	lease, ok := core.LeaseFrom(ctx)
	if !ok { // lost already
		return context.Cause(ctx)
	}
	fmt.Fprintln(p.out, "begin", tick.Unix(), lease.Token())
	select {
	case <-p.leave:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	fmt.Fprintln(p.out, "complete", tick.Unix(), lease.Token())
	return nil
}

// listen hands on each line of the input, and calls stop at its end.
func (p *printer) listen(in io.Reader, stop func()) {
	defer stop()
	for lines := bufio.NewScanner(in); lines.Scan(); {
		p.leave <- struct{}{}
	}
}
