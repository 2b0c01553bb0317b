package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// Trial is one scenario of one peer in one round.
type Trial struct {
	Scenario string             `json:"scenario"`
	Peer     string             `json:"peer"`
	Round    int                `json:"round"`
	Measures map[string]float64 `json:"measures,omitempty"` // by Metric.Name
	Shares   []float64          `json:"shares,omitempty"`   // of the processes, in percent, largest first
	Overlaps int64              `json:"overlaps"`           // how often two were in the critical section
	Error    string             `json:"error,omitempty"`    // why its measures do not count
	Stall    time.Duration      `json:"stall,omitempty"`    // the machine's worst while it counted
	Trip     time.Duration      `json:"trip,omitempty"`     // there and back over the link, median
	Commands int64              `json:"commands,omitempty"` // sent to the store while it counted, if they are
	Outcomes []*Outcome         `json:"outcomes,omitempty"` // of the processes
	Took     time.Duration      `json:"took"`
}

// GaveUp is how many calls to lock ended without it.
func (t Trial) GaveUp() (n int64) {
	for _, o := range t.Outcomes {
		n += o.GaveUp
	}
	return n
}

// setting is what the trials of a run have in common.
type setting struct {
	servers map[Store]*server.Server
	errs    map[Store]error // of those that could not be started
	folder  string          // for witnesses
	pace    Pace
}

// try runs one trial. A peer that fails or hangs makes an error in it.
func (l *setting) try(ctx context.Context, s Scenario, p Peer, round int) Trial {
	began := time.Now()
	t := Trial{Scenario: s.Name, Peer: p.Name, Round: round}
	if err := l.stage(ctx, s, p, &t); err != nil {
		t.Error = err.Error()
	}
	t.Took = time.Since(began)
	return t
}

func (l *setting) stage(ctx context.Context, s Scenario, p Peer, t *Trial) error {
	if err := l.errs[p.Store]; err != nil {
		return err
	}
	store := l.servers[p.Store]
	if err := store.Wipe(ctx); err != nil {
		return fmt.Errorf("empty the store: %w", err)
	}
	addr := strings.Join(store.Addrs(), ",")
	var commands atomic.Int64
	if s.Delay > 0 || s.Count {
		var sent *atomic.Int64
		if s.Count {
			sent = &commands
		}
		link, err := newLink(addr, s.Delay, s.Busy, sent)
		if err != nil {
			return err
		}
		defer link.Close() //nolint:errcheck // nobody connects to it any more
		addr = link.Addr()
	}
	name := fmt.Sprint(strings.ReplaceAll(s.Name, "/", "-"), "-", p.Name, "-", t.Round)
	path := filepath.Join(l.folder, name)
	eyes, err := openWitness(path, s.Callers)
	if err != nil {
		return err
	}
	defer os.Remove(path) //nolint:errcheck // its folder is removed too
	defer eyes.Close()    //nolint:errcheck // nobody uses it any more

	seen, err := observe(ctx, s, &commands)
	if err != nil {
		return err
	}
	defer seen.Close()

	var meter *server.Meter
	if s.Metered {
		m := store.Meter(p.Store)
		meter = &m
	}
	pace := l.pace.of(s)
	ends := pace.Warm + pace.Watch
	if s.Finite {
		ends = pace.Limit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, ends+2*pace.Grace,
		fmt.Errorf("it hung: not at its end %v after what it was given", 2*pace.Grace))
	defer cancel()
	t.Outcomes, err = play(ctx, s.Processes, Job{
		Peer: p.Name, Scenario: s.Name, Addr: addr, Witness: path, Prefix: name, Pace: pace, Meter: meter,
	})
	t.Overlaps = eyes.overlaps()
	if err != nil {
		return err
	}
	seen.Close()
	from, to := t.counted()
	t.Stall, t.Trip, t.Commands = seen.stall(from, to), seen.trips.Quantile(0.5), seen.commands(from, to)
	t.measure(s, p)
	return t.verdict(s)
}

// counted is the time in which what happened counts.
func (t *Trial) counted() (from, to time.Time) {
	began, ended := t.Outcomes[0].Began, int64(0)
	for _, o := range t.Outcomes {
		end := o.Ended
		if o.Watched > 0 {
			end = o.Began + int64(o.Watched)
		}
		began, ended = min(began, o.Began), max(ended, end)
	}
	return time.Unix(0, began), time.Unix(0, ended)
}
