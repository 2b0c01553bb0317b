package redislock_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestKeyThatCannotBeLockedHarmsNoneOfItsBatch(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	if err := a.client.LPush(t.Context(), protocol.Key("wrong"), "text").Err(); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	gather(64, func(i int) {
		key := fmt.Sprint("k", i)
		if i%8 == 0 {
			key = "wrong"
		}
		for range 50 {
			g, err := a.Acquire(bounded(t), driver.Request{ID: newID(key), TTL: lasting})
			var permanent *driver.PermanentError
			switch {
			case key == "wrong" && errors.As(err, &permanent):
				refused.Add(1)
			case key == "wrong" || err != nil:
				t.Errorf("%s: %v", key, err)
				return
			default:
				a.release(g)
			}
		}
	})
	if n := refused.Load(); n != 8*50 {
		t.Errorf("%d of %d acquisitions of a key of another type were refused for good", n, 8*50)
	}
}

func TestServerOutOfMemoryEndsLeasesBesideThoseItRefuses(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	const n = 64
	held := make([]driver.Grant, n)
	for i := range held {
		held[i] = a.take(fmt.Sprint("held", i), lasting)
	}
	if err := a.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	gather(2*n, func(i int) {
		if i%2 == 0 {
			a.release(held[i/2])
			return
		}
		// Refused, unless it travels behind a release, after which the server takes it.
		_, _ = a.try(fmt.Sprint("new", i), lasting)
	})
}
