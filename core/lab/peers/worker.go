package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// role is that of a worker: one process of a trial. It says ready on its standard output,
// begins at a line on its standard input, and says its outcome. It ends when its standard
// input does.
const role = "worker"

// Job is what a worker is to do.
type Job struct {
	Peer     string `json:"peer"`
	Scenario string `json:"scenario"`
	Addr     string `json:"addr"`
	Witness  string `json:"witness"` // its file
	Prefix   string `json:"prefix"`  // of keys
	Number   int64  `json:"number"`  // of the process, from 1
	Pace     Pace   `json:"pace"`

	Meter *server.Meter `json:"meter,omitempty"` // of the store, if it is read
}

// Message is a line from a worker.
type Message struct {
	Ready   bool     `json:"ready,omitempty"`
	Outcome *Outcome `json:"outcome,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// roles are what this program may be besides itself.
var roles = child.Roles{role: work, measure.Spinner: measure.Spin}

// work does the job.
func work(told string) error {
	say := json.NewEncoder(os.Stdout)
	outcome, err := perform(told, func() error { return say.Encode(Message{Ready: true}) })
	message := Message{Outcome: outcome}
	if err != nil {
		message.Error = err.Error()
	}
	return errors.Join(err, say.Encode(message))
}

func perform(told string, ready func() error) (*Outcome, error) {
	var job Job
	if err := json.Unmarshal([]byte(told), &job); err != nil {
		return nil, err
	}
	p := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == job.Peer })
	s := slices.IndexFunc(scenarios, func(s Scenario) bool { return s.Name == job.Scenario })
	if p < 0 || s < 0 {
		return nil, fmt.Errorf("there is no peer %q or no scenario %q", job.Peer, job.Scenario)
	}
	scenario := scenarios[s]
	if scenario.Procs > 0 {
		runtime.GOMAXPROCS(scenario.Procs)
	}
	eyes, err := openWitness(job.Witness, scenario.Callers)
	if err != nil {
		return nil, err
	}
	process, err := peers[p].Open(job.Addr, scenario)
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	defer leave(process, job.Pace.Grace)
	stage := &stage{
		scenario: scenario, process: process, number: job.Number, prefix: job.Prefix, pace: job.Pace,
		witness: eyes,
	}
	if job.Number == 1 {
		stage.meter = job.Meter
	}
	stage.enlist()
	if err := stage.warm(); err != nil {
		return nil, err
	}
	if scenario.Ideal && job.Number == 1 {
		stage.rehearse()
	}
	if err := ready(); err != nil {
		return nil, err
	}
	begin := bufio.NewReader(os.Stdin)
	if _, err := begin.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("wait for the others: %w", err)
	}
	var over atomic.Bool
	defer over.Store(true)
	go func() {
		_, _ = begin.ReadByte()
		if !over.Load() { // whoever started the trial has gone
			os.Exit(1)
		}
	}()
	scenario.Play(context.Background(), stage)
	return stage.result(), nil
}

// leave closes what the process has of a peer. One that hangs in it hangs alone.
func leave(process Process, patience time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		process.Close()
	}()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// warm connects and has the store learn its scripts, with keys that nobody else wants. A
// peer may fail at first, and is asked again: that is reported and is not what is measured.
func (s *stage) warm() error {
	const attempts = 3
	var err error
	for i := range attempts {
		if err = s.greet(fmt.Sprint(s.prefix, "-warm-", s.number, "-", i), s.pace.Grace/attempts); err == nil {
			return nil
		}
		s.refused(fmt.Errorf("before the start: %w", err))
	}
	return fmt.Errorf("%d attempts before the start: %w", attempts, err)
}

// rehearse times the bodies of all processes without a lock, one after the other.
func (s *stage) rehearse() {
	began := time.Now()
	for range s.scenario.Processes * s.scenario.Callers {
		measure.Spend(s.scenario.Body)
	}
	s.outcome.Ideal = time.Since(began)
}

func (s *stage) greet(key string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for range 3 {
		unlock, err := s.process.Lock(ctx, key)
		if err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
	}
	return nil
}
