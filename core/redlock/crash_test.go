package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
)

// crashing is where holders are killed: an address is those of all nodes. A process that was
// killed may have left a place in the queue of a node too, which lasts for 3 seconds.
var crashing = suites.Crash{
	Open: func(addrs string) (driver.Driver, func() error, error) {
		var nodes []*redis.Client
		for addr := range strings.SplitSeq(addrs, ",") {
			nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
		}
		disconnect := func() (err error) {
			for _, c := range nodes {
				err = errors.Join(err, c.Close())
			}
			return err
		}
		return New(nodes), disconnect, nil
	},
	TTL: time.Second, After: 3 * time.Second,
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 processes that hold a lock, while
// another waits.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range startServers(t, 3) {
		addrs = append(addrs, s.Addr())
	}
	crashing.Run(t, strings.Join(addrs, ","), 2)
}

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	t.Parallel()
	servers := startServers(t, 3)
	suites.Crowd(t, 500, false, func(t testing.TB) driver.Driver {
		var nodes []*redis.Client
		for _, s := range servers {
			nodes = append(nodes, newClient(t, s.Addr()))
		}
		return New(nodes)
	})
}
