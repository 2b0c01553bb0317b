package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
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
	Server   string            `json:"server"`
	Versions map[string]string `json:"versions"` // of modules
	Rounds   int               `json:"rounds"`
	Seed     uint64            `json:"seed"`
	Pace     Pace              `json:"pace"`
	Trials   []Trial           `json:"trials"`
}

// Trial is one scenario of one peer in one round.
type Trial struct {
	Scenario string             `json:"scenario"`
	Peer     string             `json:"peer"`
	Round    int                `json:"round"`
	Measures map[string]float64 `json:"measures,omitempty"` // by Metric.Name
	Gets     int64              `json:"gets,omitempty"`
	Failed   int64              `json:"failed,omitempty"`  // of them
	Failure  string             `json:"failure,omitempty"` // the first
	Error    string             `json:"error,omitempty"`   // why there are no measures
	Took     time.Duration      `json:"took"`
}

// run starts the server and runs the trials. If ctx ends it returns those that there are.
func (p plan) run(ctx context.Context) (results Results, err error) {
	results = Results{
		Began: time.Now().UTC(), Rounds: p.Rounds, Seed: p.Seed, Pace: p.Pace, Versions: contest.Versions(), Machine: contest.Machine(p.Awake),
	}
	redis, err := server.Start(ctx, server.Redis)
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, redis.Close()) }()
	results.Server = redis.Version
	order := rand.New(rand.NewPCG(p.Seed, 0))
	for round := range p.Rounds {
		for _, s := range p.Scenarios {
			for _, together := range p.turns(s, order) {
				if err := redis.Wipe(ctx); err != nil {
					return results, fmt.Errorf("empty the server: %w", err)
				}
				trials := p.play(ctx, s, together, redis.Addr, round+1)
				if ctx.Err() != nil {
					return results, context.Cause(ctx)
				}
				for _, t := range trials {
					p.Progress("%d/%d %-9s %-22s %s", round+1, p.Rounds, s.Name, t.Peer, describe(s, t))
				}
				results.Trials = append(results.Trials, trials...)
			}
		}
	}
	return results, nil
}

// turns are the peers of a scenario in a random order, those together that play it at the
// same time.
func (p plan) turns(s Scenario, order *rand.Rand) (turns [][]Peer) {
	var all []Peer
	for _, peer := range p.Peers {
		if peer.takesPart(s) {
			all = append(all, peer)
		}
	}
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if s.Together {
		return [][]Peer{all}
	}
	for i := range all {
		turns = append(turns, all[i:i+1])
	}
	return turns
}

// play runs a trial of each peer.
func (p plan) play(ctx context.Context, s Scenario, together []Peer, addr string, round int) []Trial {
	trials := make([]Trial, len(together))
	var all sync.WaitGroup
	for i, peer := range together {
		all.Go(func() { trials[i] = p.try(ctx, s, peer, addr, round) })
	}
	all.Wait()
	return trials
}

// try runs one trial. A peer that fails or hangs makes an error in it.
func (p plan) try(ctx context.Context, s Scenario, peer Peer, addr string, round int) Trial {
	began := time.Now()
	trial := Trial{Scenario: s.Name, Peer: peer.Name, Round: round}
	ctx, cancel := context.WithTimeoutCause(ctx, p.Pace.Limit, fmt.Errorf("it hung: not at its end after %v", p.Pace.Limit))
	defer cancel()
	t := p.prepare(s, peer, addr, round)
	defer t.source.close()
	outcome, err := s.Play(ctx, t)
	if g := outcome.Gets; err == nil {
		trial.Measures, trial.Gets, trial.Failed, trial.Failure = outcome.Measures, g.Waits.Count(), g.Failed, g.Failure
		if g.Failed > 0 && g.Failed == trial.Gets {
			err = fmt.Errorf("no Get returned a value: %s", g.Failure)
		}
	}
	if err != nil {
		trial.Error = err.Error()
	}
	trial.Took = time.Since(began)
	return trial
}

func (p plan) prepare(s Scenario, peer Peer, addr string, round int) *trial {
	clean := strings.NewReplacer(" ", "", ",", "-", "/", "-", "(", "", ")", "")
	return &trial{
		peer: peer, pace: p.Pace, addr: addr, source: newSource(addr),
		prefix: fmt.Sprint(s.Name, "-", clean.Replace(peer.Name), "-", round),
	}
}

// describe is a trial in a line.
func describe(s Scenario, t Trial) string {
	if t.Error != "" {
		return "ERROR: " + t.Error
	}
	var parts []string
	for _, m := range s.Metrics {
		parts = append(parts, fmt.Sprintf("%s %s", m.Name, m.Unit.Format(t.Measures[m.Name])))
	}
	if t.Failed > 0 {
		parts = append(parts, t.failures())
	}
	return strings.Join(parts, ", ")
}

func (t Trial) failures() string {
	return fmt.Sprintf("%d of %d gets failed: %s", t.Failed, t.Gets, t.Failure)
}
