package etcdlock

import (
	clientv3 "go.etcd.io/etcd/client/v3"
)

// IsOwner returns a comparison for the user's own transactions that is true as long as
// the lease with that fencing token, as core.Lease.Token or TokenOf returns it, is
// held at etcd:
//
//	client.Txn(ctx).If(locks.IsOwner(lease.Token())).Then(clientv3.OpPut("stock/7", "41")).Commit()
//
// What such a transaction writes is written while nobody else holds the key, whatever
// pauses and clocks do: etcd itself decides. The lease must be one of a session of this
// Driver in this process, which has not been released; for any other token the
// comparison is never true.
func (d *Driver) IsOwner(token int64) clientv3.Cmp {
	d.grants.mu.Lock()
	at, ok := d.grants.byToken[token/block]
	d.grants.mu.Unlock()
	if !ok {
		return clientv3.Compare(clientv3.CreateRevision(KeyPrefix), "=", -1)
	}
	return clientv3.Compare(clientv3.CreateRevision(at.name), "=", at.create)
}

// block is how many fencing tokens the engine makes from one of the driver's: one for each
// caller in the process that gets the lease.
const block = 1024
