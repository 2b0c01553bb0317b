package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/team"
)

// role is that of a worker: one process of a trial.
const role = "worker"

// roles are what this program may be besides itself.
var roles = child.Roles{role: work, measure.Spinner: measure.Spin}

// Command is what a worker is to do: the one that is set.
type Command struct {
	Fill  *Fill  `json:"fill,omitempty"`
	Start *Start `json:"start,omitempty"`
	Tell  bool   `json:"tell,omitempty"` // what has happened
}

// Answer is a line from a worker.
type Answer struct {
	Error     string        `json:"error,omitempty"`
	Began     int64         `json:"began,omitempty"`     // when it filled the queue, in Unix nanoseconds
	Took      time.Duration `json:"took,omitempty"`      // that
	Runs      int           `json:"runs,omitempty"`      // that have begun
	Last      int64         `json:"last,omitempty"`      // when the last of them did, in Unix nanoseconds
	Disorder  int           `json:"disorder,omitempty"`  // runs before or beside an earlier item of their key
	Processor time.Duration `json:"processor,omitempty"` // that this process has used
}

// Failure implements team.Answer.
func (a Answer) Failure() string { return a.Error }

// worker is a process that has a peer's queue.
type worker struct {
	queue Queue

	mu       sync.Mutex
	takes    time.Duration // a run
	runs     int
	last     time.Time
	disorder int
	next     map[string]int // by key: the item that should run
	busy     map[string]int // by key: how many run
}

// work does what it is told.
func work(told string) error {
	failed := func(err error) Answer { return Answer{Error: err.Error()} }
	w, err := newWorker(told)
	if err != nil {
		return team.Unready(failed(err), err)
	}
	defer w.queue.Close()
	return team.Serve(w.do, failed)
}

func newWorker(told string) (*worker, error) {
	peer, settings, err := contest.Told[Settings](told, peers)
	if err != nil {
		return nil, err
	}
	w := &worker{next: make(map[string]int), busy: make(map[string]int)}
	if w.queue, err = peer.Open(settings, w.run); err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return w, nil
}

// run is called by the peer.
func (w *worker) run(_ context.Context, i Item) error {
	w.mu.Lock()
	w.runs++
	w.last = time.Now()
	if i.N < w.next[i.Key] || w.busy[i.Key] > 0 {
		w.disorder++
	}
	w.next[i.Key] = max(w.next[i.Key], i.N+1)
	w.busy[i.Key]++
	takes := w.takes
	w.mu.Unlock()
	if takes > 0 {
		time.Sleep(takes)
	}
	w.mu.Lock()
	w.busy[i.Key]--
	w.mu.Unlock()
	return nil
}

func (w *worker) do(ctx context.Context, c Command) (Answer, error) {
	switch {
	case c.Fill != nil:
		return c.Fill.do(ctx, w)
	case c.Start != nil:
		w.mu.Lock()
		w.takes = c.Start.Takes
		w.mu.Unlock()
		return Answer{}, w.queue.Work()
	case c.Tell:
		w.mu.Lock()
		defer w.mu.Unlock()
		return Answer{Runs: w.runs, Last: w.last.UnixNano(), Disorder: w.disorder, Processor: measure.Processor()}, nil
	}
	return Answer{}, errors.New("the command is empty")
}

// Start has the process work.
type Start struct {
	Takes time.Duration `json:"takes,omitempty"` // a run
}

// Fill enqueues items. Those of a key are enqueued by one caller, in order.
type Fill struct {
	Keys    int `json:"keys"`
	Each    int `json:"each"` // items of a key, which are enqueued as one burst
	Callers int `json:"callers"`
}

func (f *Fill) do(ctx context.Context, w *worker) (Answer, error) {
	began := time.Now()
	errs := make([]error, f.Callers)
	var all sync.WaitGroup
	for n := range f.Callers {
		all.Go(func() {
			for key := n; key < f.Keys; key += f.Callers {
				for i := range f.Each {
					if err := w.queue.Enqueue(ctx, Item{Key: fmt.Sprint(key), N: i}); err != nil {
						errs[n] = fmt.Errorf("enqueue: %w", err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	return Answer{Began: began.UnixNano(), Took: time.Since(began)}, errors.Join(errs...)
}
