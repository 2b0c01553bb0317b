package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/examples/stock/sale"
)

// The stores, each with the client that its driver is made from.
var (
	zookeeper = sale.Store{Name: "zookeeper", Address: "host:port,host:port of some of the ensemble's servers", Open: openZooKeeper}
	etcd      = sale.Store{Name: "etcd", Address: "host:port,host:port of some of the cluster's members", Open: openEtcd}
	postgres  = sale.Store{Name: "postgres", Address: "postgres://user:password@host:port/database", Open: openPostgres}
	mysql     = sale.Store{Name: "mysql", Address: "user:password@tcp(host:port)/database", Open: openMySQL}
)

func openZooKeeper(_ context.Context, at string) (driver.Driver, func() error, error) {
	return zklock.New(strings.Split(at, ",")), func() error { return nil }, nil // a session closes its own connection
}

func openEtcd(_ context.Context, at string) (driver.Driver, func() error, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            strings.Split(at, ","),
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: time.Second,
		Logger:               zap.NewNop(), // or it logs every attempt at a server that is down
	})
	if err != nil {
		return nil, nil, err
	}
	return etcdlock.New(client), client.Close, nil
}

func openPostgres(ctx context.Context, at string) (driver.Driver, func() error, error) {
	return openSQL(ctx, "pgx", at, sqllock.PostgreSQL)
}

func openMySQL(ctx context.Context, at string) (driver.Driver, func() error, error) {
	c, err := mysqldriver.ParseDSN(at)
	if err != nil {
		return nil, nil, errors.New("-at is no data source name; user:password@tcp(host:port)/database is right") // err may show the password
	}
	c.InterpolateParams = true // saves a round trip for each statement
	return openSQL(ctx, "mysql", c.FormatDSN(), sqllock.MySQL)
}

// openSQL makes the tables unless they are there, and a driver.
func openSQL(ctx context.Context, name, source string, d sqllock.Dialect) (driver.Driver, func() error, error) {
	db, err := sql.Open(name, source)
	if err != nil {
		return nil, nil, err
	}
	if err := sqllock.Migrate(ctx, db, d); err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	store, err := sqllock.New(db, d)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return store, db.Close, nil
}
