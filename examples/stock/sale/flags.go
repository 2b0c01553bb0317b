// Package sale is the program of examples/stock and examples/extra/stores, which keep their
// locks in different stores: buyers, a shop with three guarded entrances, and a stock
// behind it.
package sale

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
	store     *Store // that keeps the locks; nil: where the stock is
	at        string
	serve     bool
	addr      string // of the HTTP server
	grpcAddr  string

	// A replica is a child process of a run with several.
	replica   bool
	stock     string // URL of the stock service; empty if the stock is in Redis
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

func parse(args []string, stores []Store, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("stock", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.buyers, "buyers", 1000, "how many buyers come at once")
	fs.IntVar(&o.units, "units", 100, "how many units there are")
	var redis, sentinel, store string
	fs.StringVar(&redis, "redis", "", "`host:port` of a Redis for lock and stock, or host:port,host:port of a Cluster's nodes;\nempty keeps both in this process")
	fs.StringVar(&sentinel, "sentinel", "", "`name` of a master: -redis then lists the Sentinels that watch it")
	fs.StringVar(&store, "store", "", "`name` of another store for the locks, with -at:\n"+list(stores))
	fs.StringVar(&o.at, "at", "", "`address` of the -store")
	fs.IntVar(&o.processes, "processes", 1, "over how many processes the buyers are split; more than 1 needs -redis or a -store that they can share")
	fs.BoolVar(&o.serve, "serve", false, "restock afterwards and serve HTTP, gRPC and the page of locks until interrupted")
	fs.StringVar(&o.addr, "addr", anyPort, "where -serve listens for HTTP")
	fs.StringVar(&o.grpcAddr, "grpc-addr", anyPort, "where -serve listens for gRPC")
	fs.BoolVar(&o.replica, "replica", false, "started by -processes; not for hand use")
	fs.StringVar(&o.stock, "stock", "", "with -replica: `URL` of the stock")
	fs.BoolVar(&o.locked, "locked", false, "with -replica: guard the calls")
	fs.StringVar(&o.namespace, "namespace", "", "with -replica: prefix of all keys of the run")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.place, err = parsePlace(redis, sentinel); err != nil {
		return o, err
	}
	if o.store, err = find(stores, store, o.at); err != nil {
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
	case o.processes > 1 && !o.shared():
		return errors.New("-processes needs -redis, or a -store with an address: a lock kept in one process's memory does not reach another process")
	case o.replica && (!o.shared() || o.namespace == "" || o.place.kind == nowhere && o.stock == ""):
		return errors.New("-replica needs -redis or -store and -stock, and -namespace: it is started by -processes")
	}
	return nil
}

// shared reports whether several processes can take the locks.
func (o options) shared() bool {
	if o.store != nil {
		return o.store.Address != ""
	}
	return o.place.kind != nowhere
}

// run is Main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, stores []Store, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args, stores, stderr)
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

// Main is a program's main function, for locks in one of the stores. It ends the
// program.
func Main(stores ...Store) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, stores, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
