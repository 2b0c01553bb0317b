package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

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
	Error    string             `json:"error,omitempty"`    // why there are no measures
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
			if s.Once && round > 0 {
				continue
			}
			for _, together := range p.turns(s, order) {
				if err := redis.Wipe(ctx); err != nil {
					return results, fmt.Errorf("empty the server: %w", err)
				}
				trials := p.play(ctx, s, together, redis.Addr, round+1)
				if ctx.Err() != nil {
					return results, context.Cause(ctx)
				}
				for _, t := range trials {
					p.Progress("%d/%d %-9s %-14s %s", round+1, p.Rounds, s.Name, t.Peer, describe(s, t))
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
	if s.Once {
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
	t := Trial{Scenario: s.Name, Peer: peer.Name, Round: round}
	ctx, cancel := context.WithTimeoutCause(ctx, p.Pace.Limit, fmt.Errorf("it hung: not at its end after %v", p.Pace.Limit))
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close() //nolint:errcheck // it has only looked
	measures, err := s.Play(ctx, &trial{peer: peer, pace: p.Pace, addr: addr, client: client})
	if t.Measures = measures; err != nil {
		t.Measures, t.Error = nil, err.Error()
	}
	t.Took = time.Since(began)
	return t
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
	return strings.Join(parts, ", ")
}
