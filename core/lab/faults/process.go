package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
)

// worker is a process of clients, seen from the laboratory.
type worker struct {
	*child.Process
	job  Job
	done chan struct{} // closed when it has ended
	err  error         // how; may be read then
}

// start runs this program once more, as a worker.
func start(job Job) (*worker, error) {
	p, err := child.New(context.Background(), role, job)
	if err != nil {
		return nil, err
	}
	w := &worker{Process: p, job: job, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		if err := p.Wait(); err != nil {
			w.err = fmt.Errorf("process %d: %w", job.Process, err)
		}
	}()
	return w, nil
}

// ended reports whether the process has, by itself.
func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// finish lets the clients come to an end, and returns how the process ended.
func (w *worker) finish(ctx context.Context) error {
	if err := w.In.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	const patience = 2 * time.Minute
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-limit.C:
		return fmt.Errorf("process %d did not end within %v: a client hangs", w.job.Process, patience)
	}
}
