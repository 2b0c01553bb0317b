package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/team"
)

// role is that of a worker: one process of a trial.
const role = "worker"

// Command is what a worker is to do: the one that is set.
type Command struct {
	Fill *Fill `json:"fill,omitempty"`
	Wave *Wave `json:"wave,omitempty"`
	Hits *Hits `json:"hits,omitempty"`
	Race *Race `json:"race,omitempty"`
}

// Answer is a line from a worker.
type Answer struct {
	Error  string  `json:"error,omitempty"`
	Gets   *Gets   `json:"gets,omitempty"`
	Rate   float64 `json:"rate,omitempty"`   // gets per second
	Allocs float64 `json:"allocs,omitempty"` // of memory, for each get
	Stored int64   `json:"stored,omitempty"` // tries after which the store has an outdated value
	Kept   int64   `json:"kept,omitempty"`   // tries after which a process has
}

// Failure implements team.Answer.
func (a Answer) Failure() string { return a.Error }

// Gets are calls of Get.
type Gets struct {
	Waits   *measure.Waits `json:"waits"` // also of those that failed
	Failed  int64          `json:"failed,omitempty"`
	Failure string         `json:"failure,omitempty"` // the first
}

func newGets() *Gets { return &Gets{Waits: new(measure.Waits)} }

func (g *Gets) add(took time.Duration, err error) {
	g.Waits.Add(took)
	if err == nil {
		return
	}
	if g.Failed++; g.Failed == 1 {
		g.Failure = err.Error()
	}
}

func (g *Gets) merge(o *Gets) {
	g.Waits.Merge(o.Waits)
	g.Failed += o.Failed
	if g.Failure == "" {
		g.Failure = o.Failure
	}
}

// outcome is that of a trial with these gets.
func outcome(g *Gets, measures map[string]float64) Outcome {
	return Outcome{Measures: measures, Gets: g.Waits.Count(), Failed: g.Failed, Failure: g.Failure}
}

// worker is a process that has a peer's cache.
type worker struct {
	peer     Peer
	settings Settings
	source   *source
	process  Process
}

// roles are what this program may be besides itself.
var roles = child.Roles{role: work, measure.Spinner: measure.Spin}

// work does what it is told.
func work(told string) error {
	failed := func(err error) Answer { return Answer{Error: err.Error()} }
	w, err := newWorker(told)
	if err != nil {
		return team.Unready(failed(err), err)
	}
	defer w.close()
	return team.Serve(w.do, failed)
}

func newWorker(told string) (*worker, error) {
	peer, settings, err := contest.Told[Settings](told, peers)
	if err != nil {
		return nil, err
	}
	w := &worker{peer: peer, settings: settings, source: newSource(settings.Addr)}
	if w.process, err = peer.Open(settings, w.source.load); err != nil {
		w.source.close()
		return nil, fmt.Errorf("open: %w", err)
	}
	return w, nil
}

func (w *worker) close() {
	w.process.Close()
	w.source.close()
}

func (w *worker) do(ctx context.Context, c Command) (Answer, error) {
	switch {
	case c.Fill != nil:
		return c.Fill.do(ctx, w)
	case c.Wave != nil:
		return c.Wave.do(ctx, w)
	case c.Hits != nil:
		return c.Hits.do(ctx, w)
	case c.Race != nil:
		return c.Race.do(ctx, w)
	}
	return Answer{}, errors.New("the command is empty")
}

// Fill is a get of each key, with a source that takes no time.
type Fill struct {
	Keys []string `json:"keys"`
}

func (f *Fill) do(ctx context.Context, w *worker) (Answer, error) {
	w.source.takes.Store(0)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	errs := make([]error, len(f.Keys))
	room := make(chan struct{}, 16)
	for i, key := range f.Keys {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			_, errs[i] = w.process.Get(ctx, key)
		})
	}
	all.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return Answer{}, fmt.Errorf("fill the cache: %d of %d gets failed: %w", len(failed), len(f.Keys), failed[0])
	}
	return Answer{}, nil
}

// patience is how long a Get may take.
const patience = 10 * time.Second
