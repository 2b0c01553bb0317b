package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// plan is what is to be run.
type plan struct {
	Rounds    int
	Seed      uint64
	Pace      Pace
	Scenarios []Scenario
	Peers     []Peer
	Awake     bool // the cores are kept from halting
	Progress  func(format string, args ...any)
}

// Results are all trials of a run, and what they ran on.
type Results struct {
	Began    time.Time         `json:"began"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"` // of peers and stores
	Rounds   int               `json:"rounds"`
	Seed     uint64            `json:"seed"`
	Pace     Pace              `json:"pace"`
	Trials   []Trial           `json:"trials"`
}

// run starts the stores and runs the trials. If ctx ends it returns those that there are.
// A store that does not start is an error of the trials that need it, except for Redis,
// without which there is nothing to compare.
func (p plan) run(ctx context.Context) (results Results, err error) {
	results = Results{
		Began: time.Now().UTC(), Rounds: p.Rounds, Seed: p.Seed, Pace: p.Pace, Versions: map[string]string{}, Machine: contest.Machine(p.Awake),
	}
	built := contest.Versions()
	for _, peer := range p.Peers {
		if version, known := built[peer.Module]; known {
			results.Versions[peer.Name] = version
		}
	}
	folder, err := os.MkdirTemp("", "lockaround-lab-")
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	set := &setting{servers: map[Store]*server.Server{}, errs: map[Store]error{}, folder: folder, pace: p.Pace}
	for _, store := range p.stores() {
		s, serr := server.Start(ctx, store)
		if serr != nil {
			if store == Redis {
				return results, serr
			}
			p.Progress("%v", serr)
			set.errs[store] = serr
			continue
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		set.servers[store] = s
		results.Versions[string(store)+" server"] = s.Version
	}
	order := rand.New(rand.NewPCG(p.Seed, 0))
	for round := range p.Rounds {
		for _, s := range p.Scenarios {
			turn := slices.Clone(p.Peers)
			order.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
			for _, peer := range turn {
				if !peer.takesPart(s) {
					continue
				}
				t := set.try(ctx, s, peer, round+1)
				if ctx.Err() != nil {
					return results, context.Cause(ctx)
				}
				results.Trials = append(results.Trials, t)
				p.Progress("%d/%d %-12s %-11s %s", round+1, p.Rounds, s.Name, peer.Name, describe(s, t))
			}
		}
	}
	return results, nil
}

// stores are those that the plan needs, in a fixed order.
func (p plan) stores() (all []Store) {
	for _, s := range p.Scenarios {
		for _, peer := range p.Peers {
			if peer.takesPart(s) && !slices.Contains(all, peer.Store) {
				all = append(all, peer.Store)
			}
		}
	}
	slices.Sort(all)
	return all
}

// describe is a trial in a line.
func describe(s Scenario, t Trial) string {
	var parts []string
	for _, m := range s.Metrics {
		if v, ok := t.Measures[m.Name]; ok {
			parts = append(parts, m.Unit.Format(v))
		}
	}
	if len(t.Shares) > 0 {
		parts = append(parts, shares(t.Shares))
	}
	if n := t.GaveUp(); n > 0 {
		parts = append(parts, fmt.Sprintf("%d gave up", n))
	}
	parts = append(parts, fmt.Sprintf("stall %v", t.Stall.Round(10*time.Microsecond)))
	if t.Error != "" {
		parts = append(parts, "ERROR: "+t.Error)
	}
	return strings.Join(parts, ", ")
}

func shares(of []float64) string {
	var parts []string
	for _, v := range of {
		parts = append(parts, fmt.Sprintf("%.0f", v))
	}
	return strings.Join(parts, ":") + " %"
}
