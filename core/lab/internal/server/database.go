package server

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/lockaround/lockaround/core/internal/dbserver"
)

// database is the name of the one in each database server that there is for the locks.
const database = "lab"

func product(kind Kind) *dbserver.Server {
	if kind == MariaDB {
		return dbserver.MariaDB()
	}
	return dbserver.PostgreSQL()
}

// Source is the data source of a database server by way of an address.
func Source(kind Kind, addr string) string { return product(kind).Source(addr, database) }

// Pool returns connections to a data source of [Source], which may have options behind it.
func Pool(kind Kind, source string) (*sql.DB, error) {
	if kind != MariaDB {
		return sql.Open(product(kind).Driver, source)
	}
	c, err := mysql.ParseDSN(source)
	if err != nil {
		return nil, err
	}
	c.Logger = &mysql.NopLogger{} // connections are broken on purpose
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// startDatabase starts a database server with an empty database.
func startDatabase(ctx context.Context, kind Kind) (*Server, error) {
	p := product(kind)
	if err := p.Launch(ctx); err != nil {
		return nil, err
	}
	version, err := p.Make(ctx, database)
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return &Server{Addr: p.Addr(), Version: version, daemon: p.Daemon(), end: p.Stop, Wipe: func(context.Context) error { return nil }}, nil
}
