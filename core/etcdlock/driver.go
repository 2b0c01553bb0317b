package etcdlock

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// minTTL is the shortest lease that etcd grants with its default election
	// time-out: one and a half of it, in whole seconds.
	minTTL = 2 * time.Second

	// wake is the longest time between two polls of a waiter whose watch reports nothing.
	wake = time.Second
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
	}
}

// Open starts a session.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case d.client == nil:
		return nil, errors.New("open an etcd lock session: the client is nil; pass one made by clientv3.New")
	case c.Sink == nil:
		return nil, errors.New("open an etcd lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open an etcd lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	}
	return newSession(d, c), nil
}
