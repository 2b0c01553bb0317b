package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// onConnection is a lock that a database keeps for a connection, until that unlocks it or ends.
// So whoever has one has a connection of the pool to himself, which is as large as it takes. It
// has no token and no time of its own, and ends when the connection does, whatever its holder
// believes.
type onConnection struct {
	db           *sql.DB
	lock, unlock string // queries whose parameter is the key; unlock says whether there was one
}

// PostgreSQL's advisory locks, whose keys are numbers.
// https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS
func openAdvisory(addr string, s Scenario) (Process, error) {
	return openOnConnection(Postgres, addr, s, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`)
}

// MariaDB's GET_LOCK, which waits for a number of seconds: here for a day.
// https://mariadb.com/kb/en/get_lock/
func openGetLock(addr string, s Scenario) (Process, error) {
	return openOnConnection(MariaDB, addr, s, `SELECT GET_LOCK(?, 86400)`, `SELECT RELEASE_LOCK(?)`)
}

func openOnConnection(kind Store, addr string, s Scenario, lock, unlock string) (Process, error) {
	db, err := poolOf(kind, addr, s.Callers)
	if err != nil {
		return nil, err
	}
	return &onConnection{db, lock, unlock}, nil
}

// poolOf returns connections, of which so many stay open.
func poolOf(kind Store, addr string, idle int) (*sql.DB, error) {
	source := server.Source(kind, addr)
	if kind == MariaDB {
		source += "?interpolateParams=true"
	}
	db, err := server.Pool(kind, source)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(idle)
	return db, nil
}

func (p *onConnection) Lock(ctx context.Context, key string) (func() error, error) {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, p.lock, key); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		var was bool
		err := conn.QueryRowContext(context.Background(), p.unlock, key).Scan(&was)
		if err == nil && !was {
			err = errors.New("there was no lock")
		}
		return errors.Join(err, conn.Close())
	}, nil
}

func (p *onConnection) Close() { _ = p.db.Close() } // the process ends
