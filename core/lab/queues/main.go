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
	"log"
	"os"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(roles)
	f := contest.NewFlags(7)
	contest.Run(func(ctx context.Context, awake bool) error {
		p := plan{Rounds: f.Rounds, Seed: f.Seed, Pace: full, Peers: peers, Progress: log.Printf, Awake: awake}
		return compare(ctx, p, f.Only, f.Peers, f.Out)
	})
}

// compare runs the plan and writes the results, also of a run that was interrupted.
func compare(ctx context.Context, p plan, only, with, out string) error {
	err := contest.Check(out, p.Rounds)
	if err != nil {
		return err
	}
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
