package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/lockaround/lockaround/core/internal/child"
)

// member is a worker, seen from the one who started it.
type member struct {
	*child.Process
	ctx context.Context // of the trial
	out *json.Decoder
}

// enlist starts a worker. It ends with ctx at the latest.
func enlist(ctx context.Context, job Job) (*member, error) {
	p, err := child.New(ctx, role, job)
	if err != nil {
		return nil, err
	}
	m := &member{p, ctx, json.NewDecoder(p.Out)}
	if _, err := m.hear(); err != nil {
		m.Kill()
		return nil, err
	}
	return m, nil
}

// tell gives a command.
func (m *member) tell(c Command) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = m.In.Write(append(text, '\n'))
	return err
}

// hear returns the answer to a command.
func (m *member) hear() (Answer, error) {
	var a Answer
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
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// ask gives a command and returns the answer.
func (m *member) ask(c Command) (Answer, error) {
	_ = m.tell(c) // hear says why it cannot be told
	return m.hear()
}

// crew is the workers of a trial.
type crew []*member

// ask gives all the same command, and returns their answers.
func (c crew) ask(command Command) ([]Answer, error) {
	answers, errs := make([]Answer, len(c)), make([]error, len(c))
	var all sync.WaitGroup
	for i, m := range c {
		all.Go(func() {
			answers[i], errs[i] = m.ask(command)
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

// close has the workers end, and waits until they have.
func (c crew) close() {
	var all sync.WaitGroup
	for _, m := range c {
		_ = m.In.Close() // it may have ended
		all.Go(func() { _ = m.Wait() })
	}
	all.Wait()
}
