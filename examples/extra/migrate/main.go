// Command migrate moves a service from another lock library to lockaround without a pause:
// its replicas take the old lock, then both, then the new one alone.
//
//	go run ./examples/extra/migrate -from redislock -at 127.0.0.1:6379 # bsm/redislock
//	go run ./examples/extra/migrate -from redsync -at 127.0.0.1:6379
//	go run ./examples/extra/migrate -from etcd -at 127.0.0.1:2379      # etcd's concurrency package
//
// It prints a row for each stage of the roll-out: how many sales there were, and how many of
// them began while another one was under way.
//
//	                                             sales  overlaps  failed
//	1 1 1 1  the old lock                          283         0       0
//	1 1 2 2  replicas with both roll out           228         0       0
//	2 2 2 2  both locks                            248         0       0
//	2 2 3 3  replicas with the new one roll out    330         0       0
//	3 3 3 3  the new lock                          387         0       0
//	1 1 3 3  without step 2                        599       385       0
//
// The exit status is 1 if sales overlapped in any stage but the last, which nobody should
// try. README.md says why the steps are these; redislock.go, redsync.go and etcd.go have the
// code of a service in each of them.
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("migrate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	from := flags.String("from", "redislock", "the library to move from: `redislock`, redsync or etcd")
	at := flags.String("at", "127.0.0.1:6379", "`host:port` of the Redis or etcd in which old and new locks are")
	stage := flags.Duration("time", time.Second, "for how long each stage sells")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // Parse has said why
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "migrate: %q is no flag; see -help\n", flags.Arg(0))
		return 2
	}
	open, ok := libraries[*from]
	if !ok {
		fmt.Fprintf(stderr, "migrate: -from is %q; use redislock, redsync or etcd\n", *from)
		return 2
	}
	if err := demonstrate(ctx, open, *at, *stage, stdout); err != nil {
		fmt.Fprintln(stderr, "migrate:", err)
		return 1
	}
	return 0
}
