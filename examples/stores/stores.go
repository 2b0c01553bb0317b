package main

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/examples/stock/sale"
)

// The stores, each with the client that its driver is made from.
var (
	zookeeper = sale.Store{Name: "zookeeper", Address: "host:port,host:port of some of the ensemble's servers", Open: openZooKeeper}
	etcd      = sale.Store{Name: "etcd", Address: "host:port,host:port of some of the cluster's members", Open: openEtcd}
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
