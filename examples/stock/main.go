// Command stock sells 100 units to 1,000 buyers who all come at once, first
// without a lock and then with one, and shows what that does to the stock.
//
//	go run ./examples/stock                                    # nothing installed
//	go run ./examples/stock -redis 127.0.0.1:6379 -processes 4 # several replicas
//	go run ./examples/stock -serve                             # and then for curl and grpcurl
//
// A third of the buyers come over HTTP, through a gin route that middleware.Lock
// guards, a third over gRPC, through a method that a rule of package interceptor
// guards, and the others call a function that decorator.WithLock wraps. All lock
// the same key. The exit status is 1 if a run with locks sold anything but
// exactly what there was.
//
// The value of -redis says where lock and stock are kept:
//
//	-redis 127.0.0.1:6379                     # one server
//	-redis 10.0.0.1:6379,10.0.0.2:6379        # a Cluster, by some of its nodes
//	-redis 10.0.0.1:6379,                     # a Cluster, by one of its nodes
//	-redis 10.0.0.1:26379 -sentinel mymaster  # the master of that name, by its Sentinels
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

// options are what the command line says.
type options struct {
	buyers    int
	units     int
	processes int
	place     place
	serve     bool
	addr      string // of the HTTP server
	grpcAddr  string

	// A replica is a child process of a run with several.
	replica   bool
	locked    bool
	namespace string
}

// The bounds of the flags. A buyer is needed for each entrance.
const (
	minBuyers   = entrances
	maxBuyers   = 10_000
	maxUnits    = 1_000_000
	maxReplicas = 64
)

// anyPort lets the system choose a port.
const anyPort = "127.0.0.1:0"

// runTime bounds everything but -serve, so that the program ends even where a
// store does not.
const runTime = 5 * time.Minute

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("stock", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.buyers, "buyers", 1000, "how many buyers come at once")
	fs.IntVar(&o.units, "units", 100, "how many units there are")
	var redis, sentinel string
	fs.StringVar(&redis, "redis", "", "`host:port` of a Redis for lock and stock, or host:port,host:port of a Cluster's nodes;\nempty keeps both in this process")
	fs.StringVar(&sentinel, "sentinel", "", "`name` of a master: -redis then lists the Sentinels that watch it")
	fs.IntVar(&o.processes, "processes", 1, "over how many processes the buyers are split; more than 1 needs -redis")
	fs.BoolVar(&o.serve, "serve", false, "restock afterwards and serve HTTP and gRPC until interrupted")
	fs.StringVar(&o.addr, "addr", anyPort, "where -serve listens for HTTP")
	fs.StringVar(&o.grpcAddr, "grpc-addr", anyPort, "where -serve listens for gRPC")
	fs.BoolVar(&o.replica, "replica", false, "started by -processes; not for hand use")
	fs.BoolVar(&o.locked, "locked", false, "with -replica: guard the calls")
	fs.StringVar(&o.namespace, "namespace", "", "with -replica: prefix of all keys of the run")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.place, err = parsePlace(redis, sentinel); err != nil {
		return o, err
	}
	return o, o.check(fs.Args())
}

// check reports the first option that cannot work.
func (o options) check(rest []string) error {
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: everything is a flag, see -help", rest[0])
	case o.buyers < minBuyers || o.buyers > maxBuyers:
		return fmt.Errorf("-buyers is %d; from %d to %d are possible", o.buyers, minBuyers, maxBuyers)
	case o.units < 1 || o.units > maxUnits:
		return fmt.Errorf("-units is %d; from 1 to %d are possible", o.units, maxUnits)
	case o.processes < 1 || o.processes > maxReplicas:
		return fmt.Errorf("-processes is %d; from 1 to %d are possible", o.processes, maxReplicas)
	case o.processes > o.buyers/minBuyers:
		return fmt.Errorf("-processes is %d for %d buyers; each process needs at least %d", o.processes, o.buyers, minBuyers)
	case o.processes > 1 && o.place.kind == nowhere:
		return errors.New("-processes needs -redis: a lock kept in one process's memory does not reach another process")
	case o.replica && (o.place.kind == nowhere || o.namespace == ""):
		return errors.New("-replica needs -redis and -namespace: it is started by -processes")
	}
	return nil
}

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "stock:", err)
		return 2
	}
	if o.replica {
		err = replica(ctx, o, stdin, stdout)
	} else {
		err = demonstrate(ctx, o, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintln(stderr, "stock:", err)
		return 1
	}
	return 0
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
