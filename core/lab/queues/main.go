// Command queues compares serial.Must, which runs the items of a key in order, with asynq,
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
	"log"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(roles)
	f := contest.NewFlags(7)
	contest.Run(func(ctx context.Context, awake bool) error {
		p := plan{Rounds: f.Rounds, Seed: f.Seed, Pace: full, Scenarios: scenarios, Peers: peers, Progress: log.Printf, Awake: awake}
		return p.Compare(ctx, f.Only, f.Peers, f.Out, render)
	})
}
