// Command faults breaks processes, their links to a store, and the store itself, under
// clients that take locks, and judges from what they wrote down whether the locks kept
// their promises:
//
//	go run ./core/lab/faults -out core/lab/faults/results
//	go run ./core/lab/faults -store postgres -out core/lab/faults/results/postgres
//
// It needs Linux and the store's servers, which it starts itself. Five processes of five
// clients, this program started again, take four locks with short TTLs. Each holder adds one to
// a counter, in two steps, behind a guard that knows the largest fencing token it has seen.
// Readers and holders of a semaphore read the counter twice instead. Some ask for two keys
// at once, let a lease linger, keep a key taken for a while, or are served strictly in turn.
// One fault after the other hits them meanwhile, in an order that the seed decides.
//
// -store has the locks kept elsewhere than in one Redis server: in Valkey, etcd, PostgreSQL, MariaDB or
// ZooKeeper, in a master with replicas under the watch of Sentinels, in a Redis Cluster, or in
// a quorum of Redis servers. Each has faults of its own: sessions that expire, connections that
// the database ends, failovers that lose writes and others that lose none, slots that move, a
// minority that is dead. Where a store may lose what it has acknowledged, two may hold a lock
// until the older one's time is over: that is counted, and the guard has to refuse the older
// one.
//
// Every process writes what it asked for and what it was answered, by one clock. From that
// alone the checks tell whether two ever had a lock at once (S1), tokens rise (S2), the
// guard never let an earlier holder in and no increment was lost (S3), a lock that is free
// and waited for is granted in time (L1, L2), acquisitions return in time (L3), a lease
// that was released is left alone (L4), a holder hears of its loss in time (L5), a key is
// kept for as long as was asked for (keep), and who is served strictly in turn is passed by
// nobody (turn). The package check says how. Porcupine, which knows none of these rules, looks for an order of
// all operations in which a lock with a guarded counter would have answered as it did.
//
// A checker that has caught nothing proves nothing. So the program also runs mutants: the
// same locks with a bug put between the engine and the driver, each of which the
// laboratory must catch. -mutant runs a single one, -faults the faults whose names match.
//
// In the folder -out it writes faults.md and timelines of a run that went well and of a
// mutant. It ends with an error if a promise was broken or a mutant was not caught.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
)

func main() {
	child.Main(child.Roles{role: work})
	log.SetFlags(log.Ltime)
	// Whatever ends the run, its servers and processes end with it.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// Links write to connections that were broken on purpose: that is for who writes to hear,
	// as it is when nobody reads any more what this program says.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	l := laboratory{Progress: func(format string, a ...any) {
		if log.Output(2, fmt.Sprintf(format, a...)) != nil {
			cancel()
		}
	}}
	flag.StringVar(&l.Out, "out", "", "folder for the results, made if it is missing; empty for none")
	flag.DurationVar(&l.Time, "time", time.Minute, "how long there are faults for, at least; each comes once at least")
	flag.Uint64Var(&l.Seed, "seed", uint64(time.Now().UnixNano()), "decides the order of the faults")
	flag.StringVar(&l.Store, "store", string(stores[0].Kind), "`store` where the locks are kept: "+storeNames())
	flag.StringVar(&l.Faults, "faults", "", "regular expression of `faults`; all if it is empty, and a mutant's own")
	flag.StringVar(&l.Mutant, "mutant", "", "run this `mutant` only; none: do without mutants")
	flag.Parse()
	if err := l.run(ctx); err != nil {
		log.Print(err)
		cancel()
		os.Exit(1)
	}
}

// laboratory is what the command line asks for.
type laboratory struct {
	Out      string
	Time     time.Duration
	Seed     uint64
	Store    string // empty for the first one
	Faults   string
	Mutant   string
	Progress func(format string, a ...any)
}

// How many critical sections in a hundred are long ones, that need renewals.
const (
	someLong = 2
	manyLong = 6
)

// mutantTime is how long a mutant has to be caught, besides the time that a run takes to
// begin and to end.
const mutantTime = time.Minute

// run runs lockaround and the mutants, or one of them, and writes the results.
func (l laboratory) run(ctx context.Context) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q: there are flags only; see -h", flag.Args())
	}
	if l.Out != "" {
		if err := os.MkdirAll(l.Out, 0o755); err != nil {
			return err
		}
	}
	l.Progress("seed %d", l.Seed)
	if l.Store == "" {
		l.Store = string(stores[0].Kind)
	}
	where, err := storeNamed(l.Store)
	if err != nil {
		return fmt.Errorf("-store %w", err)
	}
	mutants := mutantsOf(where)
	switch l.Mutant {
	case "":
	case "none":
		mutants, l.Mutant = nil, ""
	default:
		m, found := mutant.Named(l.Mutant)
		if !found {
			return fmt.Errorf("-mutant %q: there is none of that name; there are %s", l.Mutant, names(mutant.All))
		}
		mutants = []mutant.Mutant{m}
	}
	var r results
	var errs []error
	if l.Mutant == "" {
		f, err := faultsOf(where, l.Faults)
		if err != nil {
			return fmt.Errorf("-faults %w", err)
		}
		l.Progress("lockaround on %s, %d kinds of fault, %v", where.Kind, len(f), l.Time)
		if r.Healthy, err = (plan{Store: where, Seed: l.Seed, Long: someLong, Faults: f, Time: l.Time, Rounds: 1, Progress: l.Progress}).run(ctx); err != nil {
			return err
		}
		l.tell(r.Healthy)
		if n := len(r.Healthy.Violations); n > 0 {
			errs = append(errs, fmt.Errorf("%d promises were broken; the first: %s", n, r.Healthy.Violations[0]))
		}
	}
	for _, m := range mutants {
		run, err := l.mutate(ctx, where, m)
		if err != nil {
			return err
		}
		r.Mutants = append(r.Mutants, run)
		if !caught(m, run) {
			errs = append(errs, fmt.Errorf("the mutant %s was not caught: %s", m.Name, m.Bug))
		}
	}
	for _, line := range r.told() {
		fmt.Println(line)
	}
	if l.Out != "" {
		errs = append(errs, r.write(l.Out))
	}
	return errors.Join(errs...)
}

// mutate runs one mutant.
func (l laboratory) mutate(ctx context.Context, where store, m mutant.Mutant) (*Run, error) {
	p, err := planOf(where, m, l.Faults)
	if err != nil {
		return nil, err
	}
	p.Seed, p.Progress = l.Seed, l.Progress
	l.Progress("mutant %s: %s", m.Name, m.Bug)
	run, err := p.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	l.tell(run)
	return run, nil
}

// planOf is the run of a mutant, with its own faults unless there is a pattern.
func planOf(where store, m mutant.Mutant, pattern string) (plan, error) {
	p := plan{Store: where, Mutant: m.Name, Long: someLong, Time: mutantTime, Until: m.Breaks}
	if len(m.Faults) > 0 || m.Long {
		p.Long = manyLong // a fault soon hits one of them
	}
	if only := cmp.Or(m.Only, string(where.Kind)); only != string(where.Kind) {
		return p, fmt.Errorf("the mutant %s is about what only the store %s has", m.Name, only)
	}
	if pattern != "" {
		f, err := faultsOf(where, pattern)
		if err != nil {
			return p, fmt.Errorf("-faults %w", err)
		}
		p.Faults = f
		return p, nil
	}
	for _, name := range m.Faults {
		f, err := faultsOf(where, name)
		if err != nil {
			return p, fmt.Errorf("faults of %s: %w", m.Name, err)
		}
		p.Faults = append(p.Faults, f...)
	}
	return p, nil
}

// mutantsOf are those that a store is tried with.
func mutantsOf(where store) (all []mutant.Mutant) {
	for _, m := range mutant.All {
		if slices.Contains(where.Mutants, m.Name) || where.Mutants == nil && (m.Only == "" || m.Only == string(where.Kind)) {
			all = append(all, m)
		}
	}
	return all
}

// tell says what a run came to.
func (l laboratory) tell(r *Run) {
	const enough = 5
	for i, v := range r.Violations {
		if i == enough {
			l.Progress("  … and %d more", len(r.Violations)-enough)
			break
		}
		l.Progress("  %s", v)
	}
	l.Progress("  %d acquisitions, %d increments, %d stale requests refused, %d times two at once after a loss of data; %d violations",
		r.Figures.Acquired, r.Figures.Accepted, r.Figures.Stale, r.Figures.Twice(), len(r.Violations))
	var when string
	for name := range r.Figures.Longest {
		if strings.HasPrefix(name, "free and waited for, ") && (when == "" || r.Figures.Longest[name] > r.Figures.Longest[when]) {
			when = name
		}
	}
	if when != "" {
		l.Progress("  longest that a key was %s: %v", when, r.Figures.Longest[when].Round(time.Millisecond))
	}
}

// caught reports whether the laboratory found a mutant to break what it breaks.
func caught(m mutant.Mutant, r *Run) bool { return broken(r.Report, m.Breaks) }

func names(all []mutant.Mutant) string {
	out := ""
	for _, m := range all {
		if out != "" {
			out += ", "
		}
		out += m.Name
	}
	return out
}
