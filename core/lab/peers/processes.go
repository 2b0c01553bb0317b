package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/lockaround/lockaround/core/internal/child"
)

// play has the processes begin together, and returns what they report. It ends with ctx,
// and leaves no process behind.
func play(ctx context.Context, processes int, job Job) ([]*Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outcomes := make([]*Outcome, processes)
	var readying, all sync.WaitGroup
	begin := make(chan struct{})
	readying.Add(processes)
	for i := range processes {
		all.Go(func() {
			job := job
			job.Number = int64(i + 1)
			outcome, err := run(ctx, job, sync.OnceFunc(readying.Done), begin)
			if err != nil {
				cancel(fmt.Errorf("process %d: %w", i+1, err)) // the others wait for it
			}
			outcomes[i] = outcome
		})
	}
	readying.Wait()
	close(begin)
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return outcomes, nil
}

// run is one worker from its start to its end. It calls ready when the worker is, or
// never will be.
func run(ctx context.Context, job Job, ready func(), begin <-chan struct{}) (*Outcome, error) {
	defer ready()
	p, err := child.New(ctx, role, job)
	if err != nil {
		return nil, err
	}
	outcome, err := converse(json.NewDecoder(p.Out), p.In, ready, begin)
	if werr := p.Wait(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if werr != nil && (err == nil || errors.Is(err, io.EOF)) {
		err = werr
	}
	return outcome, err
}

func converse(from *json.Decoder, to io.WriteCloser, ready func(), begin <-chan struct{}) (*Outcome, error) {
	defer to.Close() //nolint:errcheck // the worker ends by it
	for {
		var m Message
		if err := from.Decode(&m); err != nil {
			return nil, fmt.Errorf("it said nothing of its end: %w", err)
		}
		switch {
		case m.Error != "":
			return nil, errors.New(m.Error)
		case m.Outcome != nil:
			return m.Outcome, nil
		}
		ready()
		<-begin
		if _, err := io.WriteString(to, "begin\n"); err != nil {
			return nil, err
		}
	}
}
