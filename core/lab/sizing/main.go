// Command sizing measures what locks cost a Redis server and the processes that use it, and compares what follows from
// that with larger loads:
//
//	go run ./core/lab/sizing -out core/lab/sizing/results
//
// It needs redis-server, and takes eight minutes for three rounds. Processor time is the server's own, by INFO cpu, since
// the load runs on the same cores. In the folder it writes the figures of the server's release as JSON, and sizing.md from
// those of all releases that are there: start it by .ci/newer for another one.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

func main() {
	out := flag.String("out", "", "folder for the results, made if it is missing (required)")
	rounds := flag.Int("rounds", 3, "how often each figure is measured")
	only := flag.String("only", "", "regular expression of `measures` to run")
	short := flag.Bool("short", false, "small loads, to see that everything works")
	redis.SetLogger(quiet{}) // a load that is too large shows in the figures
	contest.Run(func(ctx context.Context, awake bool) error {
		if err := contest.Check(*out, *rounds); err != nil {
			return err
		}
		chosen, err := contest.Choose("only", *only, "measure", measures, func(m measuring) string { return m.name })
		if err != nil {
			return err
		}
		s := full
		if *short {
			s = brief
		}
		r, err := run(ctx, s, chosen, *rounds)
		if err != nil {
			return err
		}
		r.Machine = contest.Machine(awake)
		return write(r, *out)
	})
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// result is what was measured on one release of the server.
type result struct {
	Server, Machine string
	Figures         []*taken
}

// taken is a figure and its value in each round.
type taken struct {
	Name, Unit string
	Values     []float64
}

func run(ctx context.Context, s scale, chosen []measuring, rounds int) (*result, error) {
	r := new(result)
	for round := range rounds {
		for _, m := range chosen {
			b, err := start(ctx, s, m.masters)
			if err != nil {
				return nil, err
			}
			r.Server = b.node.Version
			err = errors.Join(m.take(ctx, b), b.close())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			for _, f := range b.figures {
				log.Printf("%d/%d %-22s %s: %s %s", round+1, rounds, m.name, f.Name, digits(f.Values[0]), f.Unit)
				r.add(f)
			}
		}
	}
	return r, nil
}

// named returns the index of the figure of that name, or -1.
func named(all []*taken, name string) int {
	return slices.IndexFunc(all, func(f *taken) bool { return f.Name == name })
}

func (r *result) add(f *taken) {
	if i := named(r.Figures, f.Name); i >= 0 {
		r.Figures[i].Values = append(r.Figures[i].Values, f.Values...)
	} else {
		r.Figures = append(r.Figures, f)
	}
}

var name = regexp.MustCompile(`[^a-z0-9.]+`)

// write writes the figures of this release, besides those that are there, and the table of all.
func write(r *result, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results are for everybody
		return err
	}
	file := name.ReplaceAllString(strings.ToLower(r.Server), "-") + ".json"
	if text, err := os.ReadFile(filepath.Join(folder, file)); err == nil { // what was not measured this time stays
		last := new(result)
		if err := json.Unmarshal(text, last); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		r.Figures = merged(last.Figures, r.Figures)
	}
	text, err := contest.JSON(r)
	if err != nil {
		return err
	}
	if err := contest.Write(folder, map[string][]byte{file: text}); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	var all []*result
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		one := new(result)
		if err := json.Unmarshal(text, one); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b *result) int { return cmp.Compare(a.Server, b.Server) })
	return contest.Write(folder, map[string][]byte{"sizing.md": []byte("# What locks cost a Redis server\n\n" + table(all))})
}

// merged returns the figures in the order of the old ones, with what is newer.
func merged(old, newer []*taken) []*taken {
	all := slices.Clone(old)
	for _, f := range newer {
		if i := named(all, f.Name); i >= 0 {
			all[i] = f
		} else {
			all = append(all, f)
		}
	}
	return all
}

// table has a row for each figure and a column for each release.
func table(all []*result) string {
	var b strings.Builder
	heads, line := "| |", "|---|"
	var names []string
	for _, r := range all {
		heads, line = heads+" "+r.Server+" |", line+"---|"
		for _, f := range r.Figures {
			if !slices.Contains(names, f.Name) {
				names = append(names, f.Name)
			}
		}
	}
	fmt.Fprintf(&b, "%s. Medians of the rounds, and their range.\n\n%s\n%s\n", all[0].Machine, heads, line)
	for _, n := range names {
		fmt.Fprintf(&b, "| %s |", n)
		for _, r := range all {
			cell := "–"
			if i := named(r.Figures, n); i >= 0 {
				cell = r.Figures[i].text()
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (f *taken) text() string {
	least, most := digits(slices.Min(f.Values)), digits(slices.Max(f.Values))
	text := strings.TrimSpace(digits(measure.Median(f.Values)) + " " + f.Unit)
	if least != most {
		text += fmt.Sprintf(" (%s–%s)", least, most)
	}
	return text
}

func digits(v float64) string {
	if v >= 1000 {
		return thousands(int(math.Round(v)))
	}
	return measure.Digits(v)
}
