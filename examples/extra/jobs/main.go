// Command jobs has several replicas with the same schedule, of which one runs each tick,
// and kills one of them in the middle of a run.
//
//	go run ./examples/extra/jobs -redis 127.0.0.1:6379                    # by robfig/cron
//	go run ./examples/extra/jobs -redis 127.0.0.1:6379 -scheduler gocron  # by go-co-op/gocron
//
// The replicas are processes of their own, which meet in a Redis only:
//
//	10:15:21 replica 2 completes the report, token 1838430741514238976
//	10:15:24 replica 3 begins the report and is killed, token 1838430744625630208
//	10:15:24 replica 1 completes the report, token 1838430744934716416
//	10:15:24 replica 1 has caught it up
//	10:15:27 replica 1 completes the report, token 1838430747676565504
//	10:15:30 replica 2 completes the report, token 1838430750728968192
//	4 ticks, each of them completed once
//
// The exit status is 1 if a tick was completed twice, or by nobody. replica.go is the part
// that a service has, and schedulers.go what it does for its scheduler.
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
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// options are the flags.
type options struct {
	redis     string
	scheduler string
	replicas  int
	ticks     int
	period    time.Duration // between two ticks
	replica   bool          // this process is one
	namespace string        // of its locks
}

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("jobs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.redis, "redis", "", "`host:port` or socket of the Redis in which the replicas meet")
	flags.StringVar(&o.scheduler, "scheduler", "cron", "what calls the job: `cron` or gocron")
	flags.IntVar(&o.replicas, "replicas", 3, "how many processes have the schedule, 2 or more")
	flags.IntVar(&o.ticks, "ticks", 4, "end after that many ticks, 2 or more")
	flags.DurationVar(&o.period, "period", 3*time.Second, "between two ticks: seconds that a minute is a multiple of, 3 or more")
	flags.BoolVar(&o.replica, "replica", false, "be a replica (the program starts itself so)")
	flags.StringVar(&o.namespace, "namespace", "jobs-example", "of the replica's locks")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // Parse has said why
	}
	if fault := o.fault(flags.Args()); fault != "" {
		fmt.Fprintln(stderr, "jobs:", fault)
		return 2
	}
	work := demonstrate
	if o.replica {
		work = func(ctx context.Context, o options, stdout io.Writer) error { return serve(ctx, o, stdin, stdout) }
	}
	if err := work(ctx, o, stdout); err != nil {
		fmt.Fprintln(stderr, "jobs:", err)
		return 1
	}
	return 0
}

// fault is what is wrong with the command line, or empty.
func (o *options) fault(rest []string) string {
	switch {
	case len(rest) > 0:
		return fmt.Sprintf("%q is no flag; -help lists them", rest[0])
	case o.redis == "":
		return "-redis is not set; the replicas need a Redis to meet in, such as 127.0.0.1:6379"
	case schedulers[o.scheduler] == nil:
		return fmt.Sprintf("-scheduler is %q; use cron or gocron", o.scheduler)
	case o.replicas < 2:
		return fmt.Sprintf("-replicas is %d; one of them is killed, so 2 or more are needed", o.replicas)
	case o.ticks < 2:
		return fmt.Sprintf("-ticks is %d; a replica is killed at the second, so 2 or more are needed", o.ticks)
	case o.period < 3*time.Second || time.Minute%o.period != 0 || o.period%time.Second != 0:
		return fmt.Sprintf("-period is %v; seconds that a minute is a multiple of are possible, from 3s to 1m", o.period)
	}
	return ""
}
