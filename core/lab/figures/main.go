// Command figures runs what shows the twenty figures that lockaround is held to, on every
// driver where they apply, and makes one table of what came out:
//
//	go run ./core/lab/figures -out core/lab/figures/results
//
// It is run in the module's own folder, needs all servers that the tests need, a C compiler
// and spin, and takes some hours. -only runs the figures whose numbers match, -driver the
// drivers whose names do; both are regular expressions of the whole:
//
//	go run ./core/lab/figures -out core/lab/figures/results -only '7|1[0-9]' -driver 'redislock.*'
//
// Every row is a command that anybody can run by itself, most often a test, which counts
// in full if the environment says LOCKAROUND_COUNTS=all. What was counted is what the
// command tells of: a test by its attribute, t.Attr("figure-7", "500 holders killed, …"),
// another program by a line that looks like go test -v's for such an attribute. A command
// that fails, or that tells nothing, has fallen short. What cannot be asked of a driver is a
// row too, with the reason.
//
// In the folder -out are figures.json and figures.md. A row that was run replaces the one
// that is there, the others stay. The command ends with an error if anything that it has
// run fell short.
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
	"syscall"
	"time"
)

func main() {
	log.SetFlags(log.Ltime)
	out := flag.String("out", "", "folder for the results, made if it is missing (required)")
	only := flag.String("only", "", "regular expression of `figures` to run, by number; all if it is empty")
	on := flag.String("driver", "", "regular expression of `drivers` to run them on; all if it is empty")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer cancel()
	if err := show(ctx, *out, *only, *on); err != nil {
		log.Print(err)
		cancel()
		os.Exit(1)
	}
}

// show runs what is asked for and writes the results after each, so that those of a run
// that is interrupted are there.
func show(ctx context.Context, out, only, on string) error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("%q: there are flags only; see -h", flag.Args())
	case out == "":
		return errors.New("where do the results go? say -out DIR")
	}
	chosen, err := choose(trials, only, on)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	all, err := load(out)
	if err != nil {
		return err
	}
	var errs []error
	for i, t := range chosen {
		log.Printf("%d of %d, %s: %s", i+1, len(chosen), t.Driver, t.Command())
		rows, err := t.run(ctx, time.Now(), log.Printf)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, r := range rows {
			log.Printf("  figure %d: %s: %s", r.Figure, r.Outcome, r.Text)
			if r.Outcome == fellShort {
				errs = append(errs, fmt.Errorf("figure %d, %s, fell short: %s", r.Figure, r.Driver, r.Text))
			}
		}
		all = replace(all, t, rows)
		if err := write(out, all); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// choose returns the trials of which a figure and the driver match.
func choose(all []trial, only, on string) (chosen []trial, err error) {
	number, err := whole(only)
	if err != nil {
		return nil, fmt.Errorf("-only %w", err)
	}
	driver, err := whole(on)
	if err != nil {
		return nil, fmt.Errorf("-driver %w", err)
	}
	for _, t := range all {
		for _, f := range t.Figures {
			if number.MatchString(fmt.Sprint(f)) && driver.MatchString(t.Driver) {
				chosen = append(chosen, t)
				break
			}
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %q -driver %q: nothing is to be run for that; figures are 1 to %d, drivers %q", only, on, len(figures), drivers)
	}
	return chosen, nil
}

func whole(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		pattern = ".*"
	}
	return regexp.Compile("^(" + pattern + ")$")
}
