// Package team has the worker processes of a comparison. A worker answers each line on its
// standard input by one on its standard output, and ends with its standard input. The first line
// it says unasked, when it is ready.
package team

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
)

// Answer is what a worker says: why it cannot do what it was told, or nothing.
type Answer interface{ Failure() string }

// Member is a worker, seen from the one who started it, which gives commands of type C.
type Member[C any, A Answer] struct {
	*child.Process
	ctx context.Context // of the trial
	out *json.Decoder
}

// Enlist starts a worker and tells it its job. It ends with ctx at the latest.
func Enlist[C any, A Answer](ctx context.Context, role string, job any) (*Member[C, A], error) {
	p, err := child.New(ctx, role, job)
	if err != nil {
		return nil, err
	}
	m := &Member[C, A]{p, ctx, json.NewDecoder(p.Out)}
	if _, err := m.Hear(); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// Tell gives a command.
func (m *Member[C, A]) Tell(c C) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = m.In.Write(append(text, '\n'))
	return err
}

// Hear returns the answer to a command.
func (m *Member[C, A]) Hear() (a A, err error) {
	if err := m.out.Decode(&a); err != nil {
		werr := m.Wait()
		switch {
		case m.ctx.Err() != nil:
			return a, context.Cause(m.ctx)
		case werr != nil:
			return a, werr
		}
		return a, fmt.Errorf("it ended without an answer: %w", err)
	}
	if failure := a.Failure(); failure != "" {
		return a, errors.New(failure)
	}
	return a, nil
}

// Ask gives a command and returns the answer.
func (m *Member[C, A]) Ask(c C) (A, error) {
	_ = m.Tell(c) // Hear says why it cannot be told
	return m.Hear()
}

// Team is the workers of a trial.
type Team[C any, A Answer] []*Member[C, A]

// Recruit starts n workers that have the same job.
func Recruit[C any, A Answer](ctx context.Context, n int, role string, job any) (Team[C, A], error) {
	var all Team[C, A]
	for range n {
		m, err := Enlist[C, A](ctx, role, job)
		if err != nil {
			all.Close()
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// Ask gives all the same command, and returns their answers.
func (t Team[C, A]) Ask(command C) ([]A, error) {
	answers, errs := make([]A, len(t)), make([]error, len(t))
	var all sync.WaitGroup
	for i, m := range t {
		all.Go(func() {
			answers[i], errs[i] = m.Ask(command)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", i+1, err)
		}
	}
	return answers, nil
}

// Close has the workers end, and waits until they have.
func (t Team[C, A]) Close() {
	var all sync.WaitGroup
	for _, m := range t {
		_ = m.In.Close() // it may have ended
		all.Go(func() { _ = m.Wait() })
	}
	all.Wait()
}

// Serve answers commands until there are no more, as a worker does that has started. failed is
// the answer that has an error.
func Serve[C any, A Answer](do func(context.Context, C) (A, error), failed func(error) A) error {
	say := json.NewEncoder(os.Stdout)
	commands := hear[C](os.Stdin)
	var answer A
	for {
		if err := say.Encode(answer); err != nil {
			return err
		}
		c, ok := <-commands
		if !ok {
			return nil
		}
		var err error
		if answer, err = do(context.Background(), c); err != nil {
			answer = failed(err)
		}
	}
}

// Unready says why a worker cannot start.
func Unready[A Answer](why A, err error) error {
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(why))
}

// hear passes the commands on until there are no more. What hangs then hangs alone.
func hear[C any](in io.Reader) <-chan C {
	commands := make(chan C)
	go func() {
		defer close(commands)
		for from := json.NewDecoder(in); ; {
			var c C
			if err := from.Decode(&c); err != nil {
				time.AfterFunc(5*time.Second, func() { os.Exit(1) })
				return
			}
			commands <- c
		}
	}()
	return commands
}
