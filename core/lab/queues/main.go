// Command queues compares decorator.Serial, which runs the items of a key in order, with asynq,
// which does not, on a Redis that it starts itself:
//
//	go run ./core/lab/queues -out core/lab/queues/results
//
// It needs a Unix and redis-server, and takes six minutes. Every trial is a scenario of one peer in
// processes of their own; the trials of the peers are interleaved, so that what else the machine does
// hits all of them. In the folder it writes every trial as queues.json, medians as queues.md, and
// charts as SVG. What happens meanwhile is on the standard error. -awake, on Linux, keeps the cores from
// halting between two messages, as for command peers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(roles)
	out := flag.String("out", "", "folder for the results, made if it is missing (required)")
	rounds := flag.Int("rounds", 7, "how many trials each peer has of each scenario")
	only := flag.String("only", "", "regular expression of `scenarios` to run")
	with := flag.String("peers", "", "regular expression of `peers` that take part")
	seed := flag.Uint64("seed", 1, "decides the order of the peers in each round")
	contest.Run(func(ctx context.Context, awake bool) error {
		p := plan{Rounds: *rounds, Seed: *seed, Pace: full, Peers: peers, Progress: log.Printf, Awake: awake}
		return compare(ctx, p, *only, *with, *out)
	})
}

// compare runs the plan and writes the results, also of a run that was interrupted.
func compare(ctx context.Context, p plan, only, with, out string) error {
	if out == "" {
		return errors.New("where do the results go? say -out DIR")
	}
	if p.Rounds < 1 {
		return fmt.Errorf("-rounds %d: must be at least 1", p.Rounds)
	}
	var err error
	if p.Peers, err = contest.Choose("peers", with, "peer", p.Peers, func(p Peer) string { return p.Name }); err != nil {
		return err
	}
	if p.Scenarios, err = contest.Choose("only", only, "scenario", scenarios, func(s Scenario) string { return s.Name }); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	results, err := p.run(ctx)
	if len(results.Trials) == 0 {
		return err
	}
	return errors.Join(err, write(out, results))
}
