package contest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// Pace says how much of everything there is, and how long a trial may take.
type Pace interface{ Longest() time.Duration }

// Peer is one of those that are compared on Redis, used as its own documentation shows.
type Peer[Open any] struct {
	Name   string
	Module string // that it is in, for its release
	Note   string // what is set or to be known, in a sentence without its name
	Copies bool   // it keeps copies of values in the process
	Extra  bool   // it is no rival: it takes part in scenarios that have Extra, and is never the best
	Open   Open
}

// Subject begins the names of the peers that the others are compared with.
const Subject = "lockaround"

// Mine reports whether the others are compared with the peer.
func (p Peer[Open]) Mine() bool { return strings.HasPrefix(p.Name, Subject) }

// Scenario is what happens to a peer, and what is measured of it.
type Scenario[P Pace, Open any] struct {
	Name     string
	Title    string
	Chart    string // the title of its chart, of the same name; "" if there is none
	Extra    bool   // extra peers take part
	Together bool   // all peers at the same time, since it is mostly waiting
	Once     bool   // in the first round only
	Split    bool   // peers with copies in the process are drawn apart from those without
	Play     func(context.Context, *Stage[P, Open]) (Outcome, error)
	Metrics  []Metric
}

// Has reports whether the peer has a part in the scenario.
func (s Scenario[P, Open]) Has(p Peer[Open]) bool { return !p.Extra || s.Extra }

// Metric is a figure of a scenario.
type Metric struct {
	Name  string
	Title string
	Unit  measure.Unit
	More  bool // the larger the better; otherwise the smaller
	Chart bool // it is drawn
}

// Stage is what a scenario is played with.
type Stage[P Pace, Open any] struct {
	Peer   Peer[Open]
	Pace   P
	Addr   string
	Client *redis.Client // to look at the server
	Prefix string        // of keys that nobody else has
}

// Outcome is what a trial came to.
type Outcome struct {
	Measures map[string]float64 `json:"measures,omitempty"` // by Metric.Name
	Gets     int64              `json:"gets,omitempty"`     // from a cache
	Failed   int64              `json:"failed,omitempty"`   // of them
	Failure  string             `json:"failure,omitempty"`  // the first
}

// Failures is how many gets failed.
func (o Outcome) Failures() string {
	return fmt.Sprintf("%d of %d gets failed: %s", o.Failed, o.Gets, o.Failure)
}

// Trial is one scenario of one peer in one round.
type Trial struct {
	Scenario string `json:"scenario"`
	Peer     string `json:"peer"`
	Round    int    `json:"round"`
	Outcome
	Error string        `json:"error,omitempty"` // why there are no measures
	Took  time.Duration `json:"took"`
}

// Results are all trials of a run, and what they ran on.
type Results[P Pace] struct {
	Began    time.Time         `json:"began"`
	Machine  string            `json:"machine"`
	Server   string            `json:"server"`
	Versions map[string]string `json:"versions"` // of modules
	Rounds   int               `json:"rounds"`
	Seed     uint64            `json:"seed"`
	Pace     P                 `json:"pace"`
	Trials   []Trial           `json:"trials"`
}

// Plan is what is to be run on one Redis.
type Plan[P Pace, Open any] struct {
	Rounds    int
	Seed      uint64
	Pace      P
	Scenarios []Scenario[P, Open]
	Peers     []Peer[Open]
	Awake     bool // the cores are kept from halting
	Progress  func(format string, args ...any)
}

// Compare runs what the flags name and writes the files of the results, also of a run that was
// interrupted.
func (p Plan[P, Open]) Compare(ctx context.Context, only, with, out string, render func(Results[P]) (map[string][]byte, error)) error {
	err := Check(out, p.Rounds)
	if err != nil {
		return err
	}
	if p.Peers, err = Choose("peers", with, "peer", p.Peers, func(p Peer[Open]) string { return p.Name }); err != nil {
		return err
	}
	if p.Scenarios, err = Choose("only", only, "scenario", p.Scenarios, func(s Scenario[P, Open]) string { return s.Name }); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	results, err := p.Run(ctx)
	if len(results.Trials) == 0 {
		return err
	}
	files, rerr := render(results)
	return errors.Join(err, rerr, Write(out, files))
}

// Run starts the server and runs the trials. If ctx ends it returns those that there are.
func (p Plan[P, Open]) Run(ctx context.Context) (results Results[P], err error) {
	results = Results[P]{Began: time.Now().UTC(), Rounds: p.Rounds, Seed: p.Seed, Pace: p.Pace, Versions: Versions(), Machine: Machine(p.Awake)}
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
					p.Progress("%d/%d %-9s %-22s %s", round+1, p.Rounds, s.Name, t.Peer, describe(s.Metrics, t))
				}
				results.Trials = append(results.Trials, trials...)
			}
		}
	}
	return results, nil
}

// turns are the peers of a scenario in a random order, those together that play it at the
// same time.
func (p Plan[P, Open]) turns(s Scenario[P, Open], order *rand.Rand) (turns [][]Peer[Open]) {
	var all []Peer[Open]
	for _, peer := range p.Peers {
		if s.Has(peer) {
			all = append(all, peer)
		}
	}
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if s.Together {
		return [][]Peer[Open]{all}
	}
	for i := range all {
		turns = append(turns, all[i:i+1])
	}
	return turns
}

// play runs a trial of each peer.
func (p Plan[P, Open]) play(ctx context.Context, s Scenario[P, Open], together []Peer[Open], addr string, round int) []Trial {
	trials := make([]Trial, len(together))
	var all sync.WaitGroup
	for i, peer := range together {
		all.Go(func() { trials[i] = p.try(ctx, s, peer, addr, round) })
	}
	all.Wait()
	return trials
}

// try runs one trial. A peer that fails or hangs makes an error in it.
func (p Plan[P, Open]) try(ctx context.Context, s Scenario[P, Open], peer Peer[Open], addr string, round int) Trial {
	began, longest := time.Now(), p.Pace.Longest()
	trial := Trial{Scenario: s.Name, Peer: peer.Name, Round: round}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it hung: not at its end after %v", longest))
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close() //nolint:errcheck // it has only looked
	clean := strings.NewReplacer(" ", "", ",", "-", "/", "-", "(", "", ")", "")
	outcome, err := s.Play(ctx, &Stage[P, Open]{
		Peer: peer, Pace: p.Pace, Addr: addr, Client: client, Prefix: fmt.Sprint(s.Name, "-", clean.Replace(peer.Name), "-", round),
	})
	if err == nil {
		trial.Outcome = outcome
		if trial.Failed > 0 && trial.Failed == trial.Gets {
			err = fmt.Errorf("no Get returned a value: %s", trial.Failure)
		}
	}
	if err != nil {
		trial.Error = err.Error()
	}
	trial.Took = time.Since(began)
	return trial
}

// describe is a trial in a line.
func describe(metrics []Metric, t Trial) string {
	if t.Error != "" {
		return "ERROR: " + t.Error
	}
	var parts []string
	for _, m := range metrics {
		parts = append(parts, fmt.Sprintf("%s %s", m.Name, m.Unit.Format(t.Measures[m.Name])))
	}
	if t.Failed > 0 {
		parts = append(parts, t.Failures())
	}
	return strings.Join(parts, ", ")
}

// Sleep ends with ctx, whose cause is its error then.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
