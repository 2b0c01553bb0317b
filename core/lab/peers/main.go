// Command peers compares lockaround with other lock libraries for Go, each used as its
// own documentation shows and with the settings that serve it best in a scenario, on
// servers that it starts itself:
//
//	go run ./core/lab/peers -out core/lab/peers/results -readme core/lab/peers/README.md
//
// It needs a Unix, redis-server and, for one scenario, etcd. Every trial is a scenario of one
// peer in processes of their own; the trials of the peers are interleaved, so that what
// else the machine does hits all of them. In the folder it writes every trial as
// peers.json, medians and ratios as peers.md, and charts as SVG. What happens meanwhile
// is on the standard error.
//
// -readme puts the charts and the table, without its details, into a page as well. -awake, on
// Linux, keeps the cores from halting between two messages, which takes longer than the message
// and makes whoever is busier look faster; but it takes processor time from who would use all.
//
// A ratio compares trials of the same round, with the best of the other peers, and is
// above 1 for the better one, whichever way its figure counts. In all trials a witness
// that the callers share counts those who entered a critical section while another one
// was in. A peer that hangs, fails or lets two callers in is reported with its error, and
// one that has nothing to compare as such. Figures in brackets are of the machine, not of
// a peer: what its bodies take without a lock, what its link takes, and how late it was to
// wake up a process that asks for nothing else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

func main() {
	child.Main(roles)
	f := contest.NewFlags(5)
	page := flag.String("readme", "", "a page to put the table and the charts into as well, between its marks")
	brief := flag.Bool("short", false, "short trials, one of each unless -rounds says otherwise, to see that everything works")
	contest.Run(func(ctx context.Context, awake bool) error {
		p := plan{Rounds: f.Rounds, Seed: f.Seed, Pace: full, Peers: peers, Progress: log.Printf, Awake: awake}
		if *brief {
			p.Pace = short
			if !given("rounds") {
				p.Rounds = 1
			}
		}
		return compare(ctx, p, f.Only, f.Peers, f.Out, *page)
	})
}

// given reports whether the command line has the flag.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// compare runs the plan and writes the results, also of a run that was interrupted.
func compare(ctx context.Context, p plan, only, with, out, page string) error {
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
	if page != "" { // before the hour that a run may take
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		if _, rest, found := strings.Cut(string(text), markBegin); !found || !strings.Contains(rest, markEnd) {
			return fmt.Errorf("-readme %s: %w", page, errNoMarks)
		}
	}
	results, err := p.run(ctx)
	if len(results.Trials) == 0 {
		return err
	}
	return errors.Join(err, write(out, page, results))
}
