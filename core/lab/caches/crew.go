package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/complaints"
)

// member is a worker, seen from the one who started it.
type member struct {
	ctx  context.Context // of the trial
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said complaints.Log
	wait func() error
}

// enlist starts a worker. It ends with ctx at the latest.
func enlist(ctx context.Context, job Job) (*member, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	m := &member{ctx: ctx, cmd: exec.CommandContext(ctx, program)}
	m.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	m.cmd.Stderr = &m.said
	m.cmd.WaitDelay = time.Second
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.out = json.NewDecoder(out)
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	m.wait = sync.OnceValue(m.cmd.Wait)
	if _, err := m.hear(); err != nil {
		m.kill()
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
	_, err = m.in.Write(append(text, '\n'))
	return err
}

// hear returns the answer to a command.
func (m *member) hear() (Answer, error) {
	var a Answer
	if err := m.out.Decode(&a); err != nil {
		werr := m.wait()
		switch {
		case m.ctx.Err() != nil:
			return a, context.Cause(m.ctx)
		case werr != nil:
			return a, fmt.Errorf("%w: %s", werr, m.said.String())
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

// kill is SIGKILL.
func (m *member) kill() {
	_ = m.cmd.Process.Kill() // it may have ended by itself
	_ = m.wait()             // killed
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
		_ = m.in.Close() // it may have ended
		all.Go(func() { _ = m.wait() })
	}
	all.Wait()
}
