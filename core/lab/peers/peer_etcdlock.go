package main

import (
	"errors"
	"time"

	etcd "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/etcdlock"
)

// etcdlock, with the defaults of lockaround and the client of the other peer on etcd.
func openEtcdlock(addr string, s Scenario) (Process, error) {
	client, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	p, err := newEngineProcess(etcdlock.New(client), s, client.Close)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return p, nil
}
