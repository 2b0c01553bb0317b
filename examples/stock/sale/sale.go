// Package sale is the program of examples/stock and examples/extra/stores, which keep their
// locks in different stores: buyers, a shop with three guarded entrances, and a stock
// behind it.
//
// # Files
//
// sale.go has the flags, and sells with locks and without; buyers.go buys, and counts what
// the store is asked; shop.go is a replica with its three entrances; replicas.go starts several;
// store.go opens what the locks are in; stock.go keeps the units; again.go has orders that are sent again.
package sale

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockaround/lockaround/core"
)

// Main is a program's main function, for locks in one of the stores. It ends the
// program.
func Main(stores ...Store) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, stores, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
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

// demonstrate sells the stock out without a lock, then with one, and serves if
// asked to. The error says what went wrong with locks, or that a run failed.
func demonstrate(ctx context.Context, o options, stdout, stderr io.Writer) error {
	where := fmt.Sprintf("lock and stock %s", o.place)
	if o.store != nil {
		where = fmt.Sprintf("lock in %s, stock %s", strings.TrimSpace(o.store.Name+" "+o.shown()), o.place)
	}
	fmt.Fprintf(stdout, "%d buyers at once for %d units; %s, buyers in %s.\n\n", o.buyers, o.units, where, crew(o))
	fmt.Fprintln(stdout, heading)

	o.locked = false
	without, err := sellOut(ctx, o, stderr)
	if err != nil {
		return fmt.Errorf("without a lock: %w", err)
	}
	fmt.Fprintln(stdout, row("without a lock", o, without))

	o.locked = true
	with, err := sellOut(ctx, o, stderr)
	if err != nil {
		return fmt.Errorf("with locks: %w", err)
	}
	fmt.Fprintln(stdout, row("with locks", o, with))

	fmt.Fprint(stdout, explanation)
	if err := verdict(o, with); err != nil {
		return err
	}
	deducted, err := orderAgain(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, repetition, patient, deducted[0], deducted[0]-patient, deducted[1], deducted[1]-patient)
	if o.serve {
		return serve(ctx, o, stdout)
	}
	return nil
}

// shown is where the locks are kept, without what may be a secret.
func (o options) shown() string {
	if o.at == "" || strings.Contains(o.at, "@") {
		return ""
	}
	return "at " + o.at
}

const explanation = `
The race: a sale reads the number of units and writes one less, in two requests. Everybody
who reads before the first of them writes sees the same number, and sells the same unit again.
`

const repetition = `
%d buyers order a unit each. The first answer to every third of them is late, and they send the order again.

                 deducted  too many
a lock alone     %8d %9d
and once         %8d %9d

A lock keeps two requests apart. With middleware.Idempotent around it, the second one gets the answer of
the first.
`

func crew(o options) string {
	if o.processes == 1 {
		return "one process"
	}
	return fmt.Sprintf("%d processes", o.processes)
}

// sellOut is one run: a full stock, all buyers, the tally.
func sellOut(ctx context.Context, o options, stderr io.Writer) (t tally, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	o.namespace, o.addr, o.grpcAddr = rand.Text(), anyPort, anyPort
	st, err := fill(ctx, o)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()

	if o.processes > 1 {
		t, err = buyInReplicas(ctx, o, st, stderr)
		if err != nil {
			return t, err
		}
	} else {
		s, err := open(o, st, core.Forever)
		if err != nil {
			return t, err
		}
		t, err = buy(ctx, s, o.buyers)
		if err := errors.Join(err, s.Close()); err != nil {
			return t, err
		}
	}
	if t.Failed > 0 {
		return t, fmt.Errorf("%d of %d buyers got no answer; the first: %s", t.Failed, o.buyers, t.Failure)
	}
	t.Left, err = st.Units(ctx, sku)
	return t, err
}

// fill opens the stock of a run with all its units in it.
func fill(ctx context.Context, o options) (stock, error) {
	st, err := openStock(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := st.SetUnits(ctx, sku, o.units); err != nil {
		return nil, errors.Join(fmt.Errorf("fill the stock %s: %w", o.place, err), st.Close())
	}
	return st, nil
}

func openStock(ctx context.Context, o options) (stock, error) {
	if o.place.kind == nowhere {
		return newHTTPStock()
	}
	if err := o.place.check(ctx); err != nil {
		return nil, fmt.Errorf("open the stock %s: %w", o.place, err)
	}
	return newRedisStock(o.place, o.namespace), nil
}

const heading = "                   sold  oversold  refused   left   p50 wait   p99 wait  hand-offs  lock round trips"

func row(name string, o options, t tally) string {
	counts := fmt.Sprintf("%-16s %6d %9d %8d %6d", name, t.Sold, max(t.Sold-o.units, 0), t.Refused, t.Left)
	if !o.locked {
		return counts + fmt.Sprintf(" %10s %10s %10s %17s", "-", "-", "-", "-")
	}
	return counts + fmt.Sprintf(" %10s %10s %10d %17d", millis(t.wait(50)), millis(t.wait(99)), t.Holds-t.Grants, t.Trips)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// verdict checks a run with locks: every unit sold once, as far as there were
// buyers, and the stock agrees.
func verdict(o options, t tally) error {
	want := min(o.units, o.buyers)
	switch {
	case t.Sold > o.units:
		return fmt.Errorf("with locks: oversold by %d", t.Sold-o.units)
	case t.Sold != want:
		return fmt.Errorf("with locks: sold %d, %d expected", t.Sold, want)
	case t.Left != o.units-want:
		return fmt.Errorf("with locks: %d left in the stock, %d expected", t.Left, o.units-want)
	}
	return nil
}

// serve restocks and keeps the guarded entrances open until ctx ends, with the page of locks
// and buyers who keep that busy.
func serve(ctx context.Context, o options, stdout io.Writer) error {
	o.namespace = rand.Text()
	st, err := fill(ctx, o)
	if err != nil {
		return err
	}
	s, err := open(o, st, 2*time.Second)
	if err != nil {
		return errors.Join(err, st.Close())
	}
	fmt.Fprintf(stdout, invitation, o.units, s.url, sku, sku, s.target, s.url, pagePath, regulars)
	s.crowd(ctx)
	return errors.Join(s.Close(), st.Close())
}

const invitation = `
Restocked: %d units. Buy one, or stop with Ctrl-C:

  curl -i -X POST %s/products/%s/deduct
  grpcurl -plaintext -d '{"sku":"%s"}' %s stock.v1.Stock/Deduct

Who holds and who waits is at %s%s, where %d more buyers want other products.
`
