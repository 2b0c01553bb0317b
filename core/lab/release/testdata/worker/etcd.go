package main

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
)

// open returns the driver for a server of etcd, and closes its client.
func open(addr string) (d driver.Driver, closeClient func() error, err error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, nil, err
	}
	return etcdlock.New(client), client.Close, nil
}
