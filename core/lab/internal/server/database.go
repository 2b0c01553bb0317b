package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

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
func startDatabase(kind Kind) func(context.Context, string) (*Server, error) {
	return func(ctx context.Context, folder string) (*Server, error) {
		p := product(kind)
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		create, run, end, err := p.Commands(folder, port)
		if err != nil {
			return nil, missing(p.Name, err)
		}
		if out, err := create.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", create.Path, err, out)
		}
		db, err := Pool(kind, p.Source(addr, ""))
		if err != nil {
			return nil, err
		}
		s := &Server{Addr: addr, folder: folder, daemon: daemonIn(folder, run), closers: []io.Closer{db}}
		s.daemon.End = end
		s.daemon.Ready = func() error {
			asking, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			var home, version string
			if err := db.QueryRowContext(asking, "SELECT "+p.Home+", version()").Scan(&home, &version); err != nil {
				return err
			}
			s.Version = version
			if filepath.Clean(home) != filepath.Join(folder, "data") {
				return fmt.Errorf("a server of %s has the port", home)
			}
			return nil
		}
		if err = s.daemon.Start(ctx); err == nil {
			_, err = db.ExecContext(ctx, "CREATE DATABASE "+database)
		}
		if err != nil {
			return nil, errors.Join(err, s.retire(), db.Close())
		}
		return s, nil
	}
}
