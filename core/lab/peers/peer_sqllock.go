package main

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// connections is how many a process with sqllock has at most: few, as those who wait need none.
const connections = 20

// openSqllock opens sqllock with the defaults of lockaround, and in PostgreSQL with notifications.
func openSqllock(kind Store) func(addr string, s Scenario) (Process, error) {
	return func(addr string, s Scenario) (Process, error) {
		db, err := poolOf(kind, addr, connections)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		dialect, opts := sqllock.MySQL, []sqllock.Option(nil)
		if kind == Postgres {
			dialect, opts = sqllock.PostgreSQL, []sqllock.Option{sqllock.WithNotifications(server.Notifications{Source: server.Source(kind, addr)})}
		}
		locks, err := sqllock.New(db, dialect, opts...)
		if err == nil {
			err = sqllock.Migrate(context.Background(), db, dialect)
		}
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		p, err := newEngineProcess(locks, s, db.Close)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return p, nil
	}
}
