package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

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
			dialect, opts = sqllock.PostgreSQL, []sqllock.Option{sqllock.WithNotifications(notifications{server.Source(kind, addr)})}
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

// notifications hears PostgreSQL's by pgx.
type notifications struct{ source string }

func (n notifications) Listen(ctx context.Context, channel string, ready func(), notify func(string)) error {
	conn, err := pgx.Connect(ctx, n.source)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is broken, or has nothing under way
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notify(got.Payload)
	}
}
