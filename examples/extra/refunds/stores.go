package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
