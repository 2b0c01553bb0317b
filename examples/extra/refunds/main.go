// Command refunds has four clients ask for refunds of the same orders, and shows what becomes of
// a provider that takes one refund of an order in 200 ms: without a queue, and with
// serial.Must. A worker is killed in the middle.
//
//	go run ./examples/extra/refunds                                            # needs nothing
//	go run ./examples/extra/refunds -redis 127.0.0.1:6379 -processes 4 -svg refunds.svg
//	go run ./examples/extra/refunds -postgres postgres://shop:secret@127.0.0.1/shop
//	go run ./examples/extra/refunds -mysql 'shop:secret@tcp(127.0.0.1:3306)/shop'
//
// On a machine with two cores:
//
//	                   refunds  overlapping  too close  out of order  twice
//	called at once          70           67         67             0      0
//	serial.Must             70            0          0             0      0
//
//	The worker w1 was killed in a refund of order A, and w3 went on 2.0s later.
//
// In a database it makes the tables of packages sqllock and sqlqueue unless they are there, and
// removes the rows of its queue at the end.
// The exit status is 1 if serial.Must has let anything of that happen.
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
	clients = 4
	ttl     = 2 * time.Second // of the locks
)

// orders are what is refunded, and how often.
var orders = []struct {
	id      string
	refunds int
}{{"A", 50}, {"B", 10}, {"C", 10}}

// options are what a run is made of.
type options struct {
	redis     string // addresses of stores, of which one at most is set
	postgres  string
	mysql     string
	processes int
	limit     time.Duration // of the provider: one refund of an order in that time
	takes     time.Duration // a refund
	picture   string
	worker    string // for processes that this program starts: their names
	namespace string // likewise: the name of the queue, and what its locks begin with
}

// run is main with its surroundings passed in; it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	fs := flag.NewFlagSet("refunds", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.redis, "redis", "", "`host:port` of a Redis for locks and queue; they are in memory without a store")
	fs.StringVar(&o.postgres, "postgres", "", "`URL` of a PostgreSQL database for them, as postgres://user:password@host:port/database")
	fs.StringVar(&o.mysql, "mysql", "", "data source `name` of a MySQL or MariaDB database for them, as user:password@tcp(host:port)/database")
	fs.IntVar(&o.processes, "processes", 4, "how many workers there are; with a store each is a process")
	fs.DurationVar(&o.limit, "limit", 200*time.Millisecond, "the provider takes one refund of an order in that time")
	fs.DurationVar(&o.takes, "takes", 60*time.Millisecond, "how long a refund takes")
	fs.StringVar(&o.picture, "svg", "", "`file` for a picture of the runs")
	fs.StringVar(&o.worker, "worker", "", "for processes that this program starts")
	fs.StringVar(&o.namespace, "namespace", "", "for processes that this program starts")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // Parse has said why
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "refunds: unexpected argument %q: everything is a flag, see -help\n", fs.Arg(0))
		return 2
	case len(o.store()) > 2:
		fmt.Fprintln(stderr, "refunds: -redis, -postgres and -mysql are stores for locks and queue; name one")
		return 2
	case o.processes < 2 || o.processes > 16 || o.limit < 10*time.Millisecond || o.takes < time.Millisecond:
		fmt.Fprintln(stderr, "refunds: -processes is 2 to 16, -limit at least 10ms, and -takes at least 1ms")
		return 2
	}
	var err error
	if o.worker != "" {
		err = workInStore(ctx, o, stdout)
	} else {
		err = demonstrate(ctx, o, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "refunds:", err)
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
