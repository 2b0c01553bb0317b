package main

import (
	"context"
	"errors"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcd, as in the package's example: a session for each process, with its default TTL
// of 60 s, and a mutex for each call. Goroutines of one session do not exclude each
// other, so that this is for one caller in each process.
// https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#example-Mutex.Lock
type etcdProcess struct {
	client  *etcd.Client
	session *concurrency.Session
}

func openEtcd(addr string, _ Scenario) (Process, error) {
	client, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdProcess{client, session}, nil
}

func (p *etcdProcess) Lock(ctx context.Context, key string) (func() error, error) {
	mutex := concurrency.NewMutex(p.session, "/"+key)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return func() error { return mutex.Unlock(context.Background()) }, nil
}

func (p *etcdProcess) Close() {
	_ = p.session.Close() // the process ends
	_ = p.client.Close()
}
