// Package etcdtest has clients of etcd servers for tests, and a proxy that does to their connections
// what networks do.
package etcdtest

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Client returns a client of the servers with those addresses, which is closed when the
// test ends.
func Client(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 30 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}
