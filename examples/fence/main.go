// Command fence has a holder of a lock pause past its lease and write late, first
// without a guard and then with one, and shows what becomes of the stock.
//
//	go run ./examples/fence                       # nothing installed
//	go run ./examples/fence -redis 127.0.0.1:6379 # lock, stock and guard in a Redis
//
// The exit status is 1 if the run with a guard leaves anything but what there should be.
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

// runTime bounds the program, so that it ends even where a store does not.
const runTime = time.Minute

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("fence", flag.ContinueOnError)
	fs.SetOutput(stderr)
	addr := fs.String("redis", "", "`host:port` of a Redis for lock, stock and guard; empty keeps them in this process")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // Parse has said why
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "fence: unexpected argument %q: everything is a flag, see -help\n", fs.Arg(0))
		return 2
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	if err := demonstrate(ctx, *addr, stdout); err != nil {
		fmt.Fprintln(stderr, "fence:", err)
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
