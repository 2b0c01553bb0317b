package clients_test

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/lab/clients"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestGeneratedCodeIsWhatGoGenerateWrites(t *testing.T) {
	check := exec.CommandContext(t.Context(), "go", "tool", "lockgen", "-check", "./...")
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A client with locks is used where the client itself is.
var (
	_ redis.UniversalClient = (*clients.RedisWithLock)(nil)
	_ redis.Cmdable         = (*clients.CommandsWithLock)(nil)
	_ clientv3.KV           = (*clients.KVWithLock)(nil)
	_ clientv3.Lease        = (*clients.LeaseWithLock)(nil)
	_ clientv3.Auth         = (*clients.AuthWithLock)(nil)
	_ clientv3.Maintenance  = (*clients.MaintenanceWithLock)(nil)
	_ clientv3.Cluster      = (*clients.ClusterWithLock)(nil)
	_ clientv3.Watcher      = (*clients.WatcherWithLock)(nil)
)

// kv notes which key was locked.
type kv struct {
	clientv3.KV
	locked string
}

func (k *kv) Put(ctx context.Context, _, _ string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	if lease, ok := core.LeaseFrom(ctx); ok {
		k.locked = lease.Key()
	}
	return &clientv3.PutResponse{}, nil
}

func TestACallOfAClientHoldsItsKey(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	next := &kv{}
	w, err := clients.NewKVWithLock(locks, next)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := w.Put(t.Context(), "a/b", "c", clientv3.WithPrevKV()); err != nil || response == nil || next.locked != "kv:a%2Fb" {
		t.Errorf("got %v, %v under %q", response, err, next.locked)
	}
	if _, err := w.Put(t.Context(), "", "c"); !errors.Is(err, core.ErrKey) {
		t.Errorf("without a key: %v", err)
	}
}
