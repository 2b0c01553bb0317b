package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// databaseTimeout is half the default. An attempt that is given up costs a connection, and
// the next one the server's making of another: on a busy machine little else gets done if
// they are given up soon.
const databaseTimeout = 1500 * time.Millisecond

// databaseEntry is how long one who waits may take to have a place while a process that is
// stopped or cut off has the key's row: three attempts, each of which comes last when it
// asks for the row again.
const databaseEntry = 3 * databaseTimeout

// postgresStore wakes its waiters by NOTIFY, and they look every second besides. The
// shortest TTL is a second. A waiter that has died keeps its place for its TTL, and a
// process leaves a database alone that has failed for a second and a half at most. One that
// is stopped or cut off in the middle of a decision keeps the key's row until PostgreSQL ends
// its transaction, after a second.
var postgresStore = store{
	Kind: server.Postgres, About: "one PostgreSQL server", Shortest: time.Second, Longest: 1500 * time.Millisecond,
	Timeout: databaseTimeout,
	Rules:   rules.With(1500*time.Millisecond, 1500*time.Millisecond, time.Second, 1500*time.Millisecond).WithStuck(time.Second).WithEntry(databaseEntry),
	Faults:  databaseFaults(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`, `SELECT pg_terminate_backend(%s)`),
	Mutants: databaseMutants,
	prepare: migrate(server.Postgres, sqllock.PostgreSQL),
	open: func(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
		source := server.Source(server.Postgres, addr)
		return openDatabase(server.Postgres, source, sqllock.PostgreSQL, record, bug, sqllock.WithNotifications(server.Notifications{Source: source}))
	},
}

// mariadbStore has its waiters look for themselves, every 200 ms. The server ends a
// transaction whose client has said nothing for a second: it may have been stopped, with a
// key's row locked.
var mariadbStore = store{
	Kind: server.MariaDB, About: "one MariaDB server", Shortest: time.Second, Longest: 1500 * time.Millisecond,
	Timeout: databaseTimeout,
	Rules:   rules.With(1500*time.Millisecond, 1500*time.Millisecond, 200*time.Millisecond, 1500*time.Millisecond).WithStuck(time.Second).WithEntry(databaseEntry),
	Faults:  databaseFaults(`SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`, `KILL %s`),
	Mutants: databaseMutants,
	prepare: migrate(server.MariaDB, sqllock.MySQL),
	open: func(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
		source := server.Source(server.MariaDB, addr) + "?interpolateParams=true&idle_transaction_timeout=1"
		return openDatabase(server.MariaDB, source, sqllock.MySQL, record, bug)
	},
}

// databaseMutants show in nearly every run. deaf-to-loss does not: a holder hears of its loss
// by its session's next look as well. Nor does open-to-all: one who may wait has three
// attempts, which outlast most faults.
var databaseMutants = []string{"kept-token", "undead-renewal", "lost-wake-up"}

// databaseFaults are those of a database. others is the query for the connections of all but
// who asks, and kill ends one of them.
func databaseFaults(others, kill string) []fault {
	return []fault{
		keptRestart,
		{
			Name: "connection-kill", About: fmt.Sprintf(kill, "…") + " of all connections", Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				return w.inDatabase(ctx, func(conn *sql.Conn) error { return killOthers(ctx, conn, others, kill) })
			},
		},
		{
			Name: "row-lock", About: "somebody's transaction has the rows of all keys, for a TTL", Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				return w.inDatabase(ctx, func(conn *sql.Conn) error {
					// It may be the one that has to give in to a deadlock.
					return persist(ctx, func() error { return lockRows(ctx, conn, w.store.Longest) })
				})
			},
		},
		{
			Name: "flush", About: "all leases and places are deleted by hand", Lossy: true, Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				return w.inDatabase(ctx, func(conn *sql.Conn) error {
					_, err := conn.ExecContext(ctx, `DELETE FROM lockaround_claim`)
					return err
				})
			},
		},
	}
}

// inDatabase does something on a connection beside the links.
func (w *world) inDatabase(ctx context.Context, do func(*sql.Conn) error) error {
	db, err := server.Pool(w.store.Kind, server.Source(w.store.Kind, w.addr()))
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it has nothing under way
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the same
	return do(conn)
}

func killOthers(ctx context.Context, conn *sql.Conn, others, kill string) error {
	rows, err := conn.QueryContext(ctx, others)
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		_, _ = conn.ExecContext(ctx, fmt.Sprintf(kill, fmt.Sprint(id))) // it may have ended by itself
	}
	return nil
}

// lockRows does what a process that is stopped in the middle of a decision does to one row.
func lockRows(ctx context.Context, conn *sql.Conn, d time.Duration) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	rows, err := tx.QueryContext(ctx, `SELECT lock_key FROM lockaround_lock FOR UPDATE`)
	if err != nil {
		return err
	}
	for rows.Next() { // each is locked when it is read
	}
	return errors.Join(rows.Err(), rows.Close(), pass(ctx, d))
}

func migrate(kind server.Kind, d sqllock.Dialect) func(context.Context, string) error {
	return func(ctx context.Context, addr string) error {
		db, err := server.Pool(kind, server.Source(kind, addr))
		if err != nil {
			return err
		}
		return errors.Join(sqllock.Migrate(ctx, db, d), db.Close())
	}
}

func openDatabase(kind server.Kind, source string, d sqllock.Dialect, record func(driver.Driver) driver.Driver, bug mutant.Mutant, opts ...sqllock.Option) (driver.Driver, func() error, error) {
	db, err := server.Pool(kind, source)
	if err != nil {
		return nil, nil, err
	}
	const conns = 20
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	locks, err := sqllock.New(db, d, opts...)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return bug.Wrap(record(locks), nil), db.Close, nil
}
