package etcdlock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/testservers"
)

// crashing is where holders are killed. etcd takes up to a second to notice that a lease is
// over, which counts whole seconds.
var crashing = suites.Crash{
	Open: func(addr string) (driver.Driver, func() error, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, Logger: zap.NewNop()})
		if err != nil {
			return nil, nil, err
		}
		return etcdlock.New(c), c.Close, nil
	},
	TTL: 2 * time.Second, After: time.Second,
}

// TestKilledHolderIsSucceededWithinTTLPlusASecond kills -9 processes that hold a lock, while
// another waits.
func TestKilledHolderIsSucceededWithinTTLPlusASecond(t *testing.T) {
	t.Parallel()
	crashing.Run(t, testservers.Etcd(t).Addr(), 2)
}

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	t.Parallel()
	server := testservers.Etcd(t)
	suites.Crowd(t, 500, false, func(t testing.TB) driver.Driver { return etcdlock.New(etcdtest.Client(t, server.Addr())) })
}
