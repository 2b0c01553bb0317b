package server

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/lockaround/lockaround/core/internal/servers"
)

// database is the name of the one in each database server that there is for the locks.
const database = "lab"

func product(kind Kind) *servers.Database {
	if kind == MariaDB {
		return servers.MariaDB
	}
	return servers.PostgreSQL
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
	one, err := p.Start(ctx, servers.Options{})
	if err != nil {
		return nil, err
	}
	version, err := p.Make(ctx, one.Addr(), database)
	if err != nil {
		return nil, errors.Join(err, one.Close())
	}
	s, err := alone([]*servers.Server{one}, nil)
	s.Version = version
	return s, err
}
