package etcdlock

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Driver keeps locks in one etcd cluster. It is immutable and safe for concurrent
// use, and implements [driver.Driver].
type Driver struct {
	client *clientv3.Client
	grants *grants
}

// New returns a driver for the locks in the cluster that the client talks to. It does
// no I/O, and the client stays the caller's: closing a session does not close it.
func New(client *clientv3.Client) *Driver {
	return &Driver{client: client, grants: newGrants()}
}

// wake is the longest time between two polls of a waiter whose watch reports nothing.
const wake = time.Second

// Capabilities says what an etcd cluster offers.
func (*Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:   "etcd",
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: minTTL,
		Tokens: driver.DurableTokens,
		Strict: true,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Wake:   wake,

		Identity: true,
		Trace:    true,
	}
}
