package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/etcdlock"
)

// underEtcd is the service before the move: it locks a mutex of etcd's concurrency package,
// and unlocks it when it has sold. Each call has a session, since a mutex does not exclude
// callers of the same one.
func underEtcd(client *clientv3.Client, sell method) method {
	return func(ctx context.Context, s sale) error {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
		if err != nil {
			return err
		}
		defer func() { _ = session.Close() }() // it expires otherwise
		mutex := concurrency.NewMutex(session, "/stock/"+s.SKU)
		if err := mutex.Lock(ctx); err != nil {
			return err
		}
		defer func() { _ = mutex.Unlock(context.WithoutCancel(ctx)) }() // it ends with the session otherwise
		return sell(ctx, s)
	}
}

// openEtcd keeps old and new locks in one etcd, where their keys differ.
func openEtcd(at string) (*replica, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{at},
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: time.Second,
		Logger:               zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	locks, err := core.New(etcdlock.New(client), core.WithNamespace("shop"))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &replica{
		old:   func(sell method) method { return underEtcd(client, sell) },
		locks: locks,
		close: client.Close,
	}, nil
}
