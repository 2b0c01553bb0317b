package main

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// etcdStore has leases that last for whole seconds, whose end etcd may take one more to
// notice, and that all begin anew with a restart.
var etcdStore = store{
	Kind: server.Etcd, About: "one etcd server", Shortest: 2 * time.Second, Longest: 2 * time.Second,
	Timeout: 500 * time.Millisecond,
	Rules:   rules.With(2*time.Second, 3*time.Second, 2*time.Second, 3*time.Second),
	Faults: []fault{
		keptRestart,
		{
			Name: "lease-revoke", About: "every lease of etcd's is revoked by hand", Lossy: true, Reach: all,
			make: func(ctx context.Context, w *world, _ int) error { return revokeLeases(ctx, w.addr()) },
		},
	},
	Mutants: []string{"kept-token", "undead-renewal", "lost-wake-up", "open-to-all", "open-to-readers", "one-too-many", "short-keep"},
	open:    openEtcd,
}

func newEtcdClient(addr string) (*etcd.Client, error) {
	return etcd.New(etcd.Config{
		Endpoints: []string{"http://" + addr}, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
		Logger: zap.NewNop(),
	})
}

func openEtcd(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	client, err := newEtcdClient(addr)
	if err != nil {
		return nil, nil, err
	}
	return bug.Wrap(record(etcdlock.New(client)), nil), client.Close, nil
}

// revokeLeases does by hand what ends everybody's leases and places.
func revokeLeases(ctx context.Context, addr string) error {
	client, err := newEtcdClient(addr)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // it has nothing under way
	all, err := client.Leases(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range all.Leases {
		if _, err := client.Revoke(ctx, l.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) { // by its owner, meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
