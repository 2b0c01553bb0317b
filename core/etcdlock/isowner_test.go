package etcdlock_test

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// guarded writes if the comparison holds, and reports whether it has.
func guarded(t *testing.T, c *clientv3.Client, owner clientv3.Cmp) bool {
	t.Helper()
	r, err := c.Txn(within(t)).If(owner).Then(clientv3.OpPut("stock", "41")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return r.Succeeded
}

func TestIsOwnerHoldsAsLongAsTheLease(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	store := etcdlock.New(c)
	locks, err := core.New(store, core.WithNamespace("test"), core.WithStoreTimeout(storeTimeout))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ctx := within(t)
	policy := core.Policy{Key: "k", TTL: long, Wait: core.Forever}

	first, err := locks.Acquire(ctx, policy)
	if err != nil {
		t.Fatal(err)
	}
	if !guarded(t, c, store.IsOwner(first.Token())) {
		t.Error("the owner's write was refused")
	}
	if err := first.Downgrade(ctx); err != nil {
		t.Fatal(err)
	}
	if !guarded(t, c, store.IsOwner(first.Token())) {
		t.Error("the owner's write was refused after its lease was lowered")
	}
	// A caller of the same process gets the lease handed on, with a token of its own.
	next := make(chan *core.Lease, 1)
	go func() {
		l, err := locks.Acquire(context.WithoutCancel(ctx), policy)
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	second := receive(t, next, "the next caller's lease")
	mine := store.IsOwner(second.Token())
	if !guarded(t, c, mine) {
		t.Error("the second owner's write was refused")
	}
	// As when the holder is paused until its lease has ended.
	if _, err := c.Delete(ctx, etcdlock.KeyPrefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if guarded(t, c, mine) {
		t.Error("a write was accepted after the lease had ended")
	}
	if guarded(t, c, store.IsOwner(second.Token()+1<<40)) || guarded(t, c, store.IsOwner(0)) {
		t.Error("a write was accepted with a token that was never issued")
	}
	_ = second.Release(ctx) // it is lost
}
