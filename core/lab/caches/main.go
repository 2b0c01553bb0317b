// Command caches compares decorator.Cached with other caches for Go that sit before a slow
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
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/awake"
)

func main() {
	child.Main(roles)
	log.SetFlags(log.Ltime)
	out := flag.String("out", "", "folder for the results, made if it is missing (required)")
	rounds := flag.Int("rounds", 3, "how many trials each peer has of each scenario")
	only := flag.String("only", "", "regular expression of `scenarios` to run")
	with := flag.String("peers", "", "regular expression of `peers` that take part")
	busy := flag.Bool("awake", false, "keep the cores from halting, by processes of the lowest priority")
	seed := flag.Uint64("seed", 1, "decides the order of the peers in each round")
	flag.Parse()
	if *busy {
		stop, err := awake.Start()
		if err != nil {
			log.Fatal("-awake: ", err)
		}
		defer stop()
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	p := plan{Rounds: *rounds, Seed: *seed, Pace: full, Peers: peers, Progress: log.Printf, Awake: *busy}
	if err := compare(ctx, p, *only, *with, *out); err != nil {
		log.Print(err)
		cancel()
		os.Exit(1)
	}
}

// compare runs the plan and writes the results, also of a run that was interrupted.
func compare(ctx context.Context, p plan, only, with, out string) error {
	if out == "" {
		return errors.New("where do the results go? say -out DIR")
	}
	if p.Rounds < 1 {
		return fmt.Errorf("-rounds %d: must be at least 1", p.Rounds)
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	who, err := regexp.Compile(with)
	if err != nil {
		return fmt.Errorf("-peers: %w", err)
	}
	p.Peers = slices.DeleteFunc(slices.Clone(p.Peers), func(peer Peer) bool { return !who.MatchString(peer.Name) })
	p.Scenarios = slices.DeleteFunc(slices.Clone(scenarios), func(s Scenario) bool { return !pattern.MatchString(s.Name) })
	switch {
	case len(p.Peers) == 0:
		return fmt.Errorf("-peers %q: there is no such peer", with)
	case len(p.Scenarios) == 0:
		return fmt.Errorf("-only %q: there is no such scenario", only)
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
