// Command caches compares package decorator/cache with other caches for Go that sit before a slow
// source, each used as its own documentation shows, on a Redis that it starts itself:
//
//	go run ./core/lab/caches -out core/lab/caches/results
//
// It needs a Unix and redis-server, and takes three minutes. Every trial is a scenario of
// one peer in processes of their own; the trials of the peers are interleaved, so that what
// else the machine does hits all of them. In the folder it writes every trial as
// caches.json, medians as caches.md, and charts as SVG. What happens meanwhile is on the
// standard error. -awake, on Linux, keeps the cores from halting between two messages, as
// for command peers.
//
// A load counts itself in Redis, by a client of its own. A Get that fails counts with the
// time that it took, and is reported; so is a peer that hangs, or returns a value that has
// ended.
package main

import (
	"context"
	"log"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(roles)
	f := contest.NewFlags(3)
	contest.Run(func(ctx context.Context, awake bool) error {
		p := plan{Rounds: f.Rounds, Seed: f.Seed, Pace: full, Scenarios: scenarios, Peers: peers, Progress: log.Printf, Awake: awake}
		return p.Compare(ctx, f.Only, f.Peers, f.Out, render)
	})
}
