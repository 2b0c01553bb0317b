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
//
// # Files
//
// main.go has the flags and the stores; demonstration.go asks, counts and draws; workers.go has the
// provider, its queue, and the workers of which one is killed.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
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

// poll is how often a process looks into a database for what others have appended or released.
const poll = 50 * time.Millisecond

// store is what locks and queue are in.
type store struct {
	locks  driver.Driver
	queues queue.Store
	clean  func(context.Context) // removes what the demonstration has left
	close  func() error
}

// store returns the arguments that name the store, which is memory without any.
func (o options) store() (args []string) {
	for _, s := range [][2]string{{"-redis", o.redis}, {"-postgres", o.postgres}, {"-mysql", o.mysql}} {
		if s[1] != "" {
			args = append(args, s[:]...)
		}
	}
	return args
}

// open connects to the store.
func (o options) open(ctx context.Context) (*store, error) {
	switch {
	case o.redis != "":
		return o.openRedis(ctx)
	case o.postgres != "":
		return o.openSQL(ctx, "pgx", o.postgres, sqllock.PostgreSQL, sqlqueue.PostgreSQL)
	}
	c, err := mysqldriver.ParseDSN(o.mysql)
	if err != nil {
		return nil, errors.New("-mysql is no data source name; user:password@tcp(host:port)/database is right") // err may show the password
	}
	c.InterpolateParams = true // saves a round trip for each statement
	c.Logger = &mysqldriver.NopLogger{}
	return o.openSQL(ctx, "mysql", c.FormatDSN(), sqllock.MySQL, sqlqueue.MySQL)
}

func (o options) openRedis(ctx context.Context) (*store, error) {
	rdb := redis.NewClient(&redis.Options{Addr: o.redis})
	err := rdb.Ping(ctx).Err()
	queues, err2 := redisqueue.New(rdb, "refunds-example:queue:")
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("reach the Redis at %s: %w", o.redis, errors.Join(err, rdb.Close()))
	}
	clean := func(ctx context.Context) {
		for all := rdb.Scan(ctx, 0, "*"+o.namespace+"*", 1000).Iterator(); all.Next(ctx); {
			_ = rdb.Del(ctx, all.Val()).Err() // what is left expires, but for a little
		}
	}
	return &store{redislock.New(rdb), queues, clean, rdb.Close}, nil
}

// openSQL makes the tables unless they are there.
func (o options) openSQL(ctx context.Context, driver, source string, lock sqllock.Dialect, queues sqlqueue.Dialect) (*store, error) {
	db, err := sql.Open(driver, source)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sqllock.Migrate(ctx, db, lock), sqlqueue.Migrate(ctx, db, queues)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &store{close: db.Close}
	if s.locks, err = sqllock.New(db, lock, sqllock.WithPoll(poll)); err == nil {
		s.queues, err = sqlqueue.New(db, queues, sqlqueue.WithPoll(poll))
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	mark := map[sqlqueue.Dialect]string{sqlqueue.PostgreSQL: "$1", sqlqueue.MySQL: "?"}[queues]
	s.clean = func(ctx context.Context) {
		for _, table := range []string{"lockaround_queue_item", "lockaround_queue_key"} {
			_, _ = db.ExecContext(ctx, "DELETE FROM "+table+" WHERE queue_name = "+mark, []byte(o.namespace)) // what is left is a few rows
		}
	}
	return s, nil
}
