// Command cache has 1,000 callers in 4 processes ask for one value, which is kept in Redis
// and ends again and again, and shows what becomes of the source that it is loaded from.
//
//	go run ./examples/cache -redis 127.0.0.1:6379
//
// On a machine with two cores:
//
//	                          refills  loads  at a time   median       99 %    longest   gets/s
//	whoever misses loads            4   2851        772   200.3 ms   201.8 ms   204.7 ms     4563
//	one of each process             5     21          4   102.1 ms   203.9 ms   209.2 ms     4781
//	cache.Must                      5      5          1   116.7 ms   205.0 ms   210.1 ms     4638
//	refreshed before its end        6      6          1     0.2 ms   189.8 ms   216.0 ms     5061
//
// The exit status is 1 if cache.Must has loaded a value twice.
//
// # Files
//
// main.go has the flags and the demonstration; ways.go the ways to load, and the callers that ask.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	processes = 4
	callers   = 250 // in each
)

// options are what the processes of a run have in common.
type options struct {
	addr      string
	run       time.Duration // for how long callers ask
	live      time.Duration // how long a value does
	load      time.Duration // how long the source takes
	way       int           // of ways
	namespace string        // of keys in Redis
}

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("cache", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.addr, "redis", "127.0.0.1:6379", "`host:port` of a Redis for the value and its lock")
	fs.DurationVar(&o.run, "run", 5*time.Second, "for how long everybody asks, each way")
	fs.DurationVar(&o.live, "live", time.Second, "how long a value lives")
	fs.DurationVar(&o.load, "load", 200*time.Millisecond, "how long the source takes")
	fs.IntVar(&o.way, "way", -1, "for processes that this program starts: in which way they ask")
	fs.StringVar(&o.namespace, "namespace", "", "for processes that this program starts: what keys in Redis begin with")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // Parse has said why
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "cache: unexpected argument %q: everything is a flag, see -help\n", fs.Arg(0))
		return 2
	case o.load < time.Millisecond || o.live < o.load || o.run < o.live:
		fmt.Fprintln(stderr, "cache: -load is at least 1ms, -live at least -load, and -run at least -live")
		return 2
	}
	var err error
	if o.way >= 0 && o.way < len(ways) {
		err = ask(ctx, o, stdout)
	} else {
		err = demonstrate(ctx, o, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "cache:", err)
		return 1
	}
	return 0
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

const (
	heading = "                          refills  loads  at a time   median       99 %    longest   gets/s"

	explanation = `
Loads with less than half a life between them are one refill. The times are of calls
during loads.
`
)

// demonstrate has everybody ask in every way. The error says what went wrong, or that there
// were two loads where one would do.
func demonstrate(ctx context.Context, o options, stdout io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: o.addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("reach the Redis at %s: %w", o.addr, err)
	}
	fmt.Fprintf(stdout, "%d callers in %d processes; the value lives for %v, and loading it takes %v.\n\n%s\n",
		processes*callers, processes, o.live, o.load, heading)
	for i, w := range ways {
		o.way, o.namespace = i, "cache-example:"+rand.Text()+":"
		a, err := askAll(ctx, o)
		left := []string{o.namespace + product, o.namespace + "price:" + product}
		if err = errors.Join(err, rdb.Del(context.WithoutCancel(ctx), left...).Err()); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		s := summarize(a, o)
		fmt.Fprintf(stdout, "%-24s %8d %6d %10d %s %s %s %8.0f\n", w.name, s.refills, s.loads, s.atATime, s.wait(0.5), s.wait(0.99), s.wait(1), s.perSecond)
		if i >= firstCached && s.loads > s.refills {
			return fmt.Errorf("%s: %d loads for %d refills", w.name, s.loads, s.refills)
		}
	}
	_, err := fmt.Fprint(stdout, explanation)
	return err
}

// askAll runs the processes and adds up their accounts.
func askAll(ctx context.Context, o options) (*account, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to start it again: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.run+time.Minute) // it ends even where Redis does not answer
	defer cancel()
	type ended struct {
		out []byte
		err error
	}
	all := make(chan ended)
	for range processes {
		p := exec.CommandContext(ctx, program, "-redis", o.addr, "-run", o.run.String(), "-live", o.live.String(), "-load", o.load.String(),
			"-way", strconv.Itoa(o.way), "-namespace", o.namespace)
		p.Stderr = os.Stderr
		go func() {
			out, err := p.Output()
			all <- ended{out, err}
		}()
	}
	var total account
	for range processes {
		p, a := <-all, account{}
		if p.err == nil {
			p.err = gob.NewDecoder(bytes.NewReader(p.out)).Decode(&a)
		}
		err = errors.Join(err, p.err)
		total.Gets, total.Loads = append(total.Gets, a.Gets...), append(total.Loads, a.Loads...)
	}
	return &total, err
}

// summary is what a run comes to.
type summary struct {
	refills, loads int
	atATime        int     // loads, at most
	waits          []int64 // of gets during loads in microseconds, sorted
	perSecond      float64 // gets
}

func summarize(a *account, o options) summary {
	s := summary{loads: len(a.Loads), perSecond: float64(len(a.Gets)) / o.run.Seconds()}
	slices.SortFunc(a.Loads, func(x, y span) int { return cmp.Compare(x.From, y.From) })
	var refills []span // from the first load's beginning to the last one's end
	for i, l := range a.Loads {
		// Due are those from a quarter of its life before a value ends.
		if n := len(refills); n > 0 && l.From < refills[n-1].To+o.live.Microseconds()/2 {
			refills[n-1].To = max(refills[n-1].To, l.To)
		} else {
			refills = append(refills, l)
		}
		under := 0
		for _, earlier := range a.Loads[:i+1] {
			if earlier.To > l.From {
				under++
			}
		}
		s.atATime = max(s.atATime, under)
	}
	s.refills = len(refills)
	for _, g := range a.Gets {
		if slices.ContainsFunc(refills, func(r span) bool { return g.From < r.To && g.To > r.From }) {
			s.waits = append(s.waits, g.To-g.From)
		}
	}
	slices.Sort(s.waits)
	return s
}

// wait returns a quantile.
func (s summary) wait(q float64) string {
	if len(s.waits) == 0 {
		return fmt.Sprintf("%10s", "-")
	}
	return fmt.Sprintf("%7.1f ms", float64(s.waits[int(q*float64(len(s.waits)-1))])/1000)
}
