package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	metrics "go.opentelemetry.io/otel/metric/noop"
	traces "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core" //nolint:depguard // it is tried as users have it: by its engine
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/history"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/faults/resource"
)

// role is that of a worker: one process of clients. It works until its standard input ends,
// and then ends itself when its clients have come to an end.
const role = "worker"

// Job is what a worker is to do.
type Job struct {
	Process  int    `json:"process"`
	Clients  int    `json:"clients"`
	Keys     int    `json:"keys"`
	Store    string `json:"store"`    // which kind
	Addr     string `json:"addr"`     // of the link to it
	Resource string `json:"resource"` // its socket
	History  string `json:"history"`  // the file to write
	Mutant   string `json:"mutant,omitempty"`
	Seed     uint64 `json:"seed"`
	Long     int    `json:"long"` // how many critical sections in a hundred need renewals
}

const namespace = "faults"

// keyOf is the key of the nth client: each key has one, and those that are left share keys
// that differ among processes, which hand on among their clients there.
func (j *Job) keyOf(n int) int {
	if n <= j.Keys {
		return n - 1
	}
	return (j.Process + n) % j.Keys
}

// keyName is the name of the nth key, from 0.
func keyName(n int) string { return fmt.Sprint("account-", n+1) }

// bare is a key without its namespace.
func bare(key string) string { return strings.TrimPrefix(key, namespace+"/") }

// work does the job.
func work(told string) (err error) {
	var job Job
	if err := json.Unmarshal([]byte(told), &job); err != nil {
		return err
	}
	log, err := history.Create(job.History)
	if err != nil {
		return err
	}
	kept, err := storeNamed(job.Store)
	if err != nil {
		return err
	}
	bug, _ := mutant.Named(job.Mutant) // the zero value is none
	d, disconnect, err := kept.open(job.Addr, func(d driver.Driver) driver.Driver { return &recorder{d, job.Process, log} }, bug)
	if err != nil {
		return err
	}
	locks, err := core.New(d, core.WithNamespace(namespace), core.WithStoreTimeout(kept.Timeout),
		core.WithTracerProvider(traces.NewTracerProvider()), core.WithMeterProvider(metrics.NewMeterProvider()))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing comes but the end
		stop()
	}()
	var all sync.WaitGroup
	errs := make(chan error, job.Clients)
	for n := 1; n <= job.Clients; n++ {
		at, err := resource.Dial(job.Resource)
		if err != nil {
			return err
		}
		c := &caller{
			job: job, store: kept, number: n, key: keyName(job.keyOf(n)), locks: locks, caps: d.Capabilities(), log: log, bug: bug, at: at,
			chance: rand.New(rand.NewPCG(job.Seed, uint64(job.Process*1000+n))),
		}
		all.Go(func() {
			if err := c.run(ctx); err != nil {
				errs <- err
				stop()
			}
		})
	}
	watched := make(chan struct{})
	over, end := context.WithCancel(context.Background())
	go func() {
		defer close(watched)
		watch(over, job.Process, log)
	}()
	all.Wait()
	end()
	<-watched
	select {
	case err := <-errs:
		return err
	default:
	}
	if err := locks.Close(); err != nil && !unavailable(err) {
		return fmt.Errorf("close the engine: %w", err)
	}
	return disconnect()
}

// watch writes down when the process does not get to run.
func watch(ctx context.Context, process int, log *history.Log) {
	const every, much = 5 * time.Millisecond, 10 * time.Millisecond
	tick := time.NewTimer(every)
	defer tick.Stop()
	for {
		due := history.Now() + int64(every)
		tick.Reset(every)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := history.Now(); now-due > int64(much) {
			log.Add(history.Event{Process: process, Op: history.Late, Call: due, Return: now})
		}
	}
}
