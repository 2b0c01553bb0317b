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
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
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
