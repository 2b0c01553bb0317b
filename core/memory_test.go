package core_test

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestHeldLeaseCostsNoGoroutineAndLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("holds thousands of leases")
	}
	const n = 10_000
	e := open(t, memlock.New())
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	leases := make([]*core.Lease, n)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "stock:" + strconv.Itoa(i)
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	for i := range leases {
		leases[i] = mustAcquire(t, e, core.Policy{Key: keys[i], Name: "stock", TTL: time.Hour})
	}
	for runtime.NumGoroutine() > goroutines {
		runtime.Gosched() // those that asked the store are on their way out
	}
	each := (int64(heap()) - int64(before)) / n
	t.Logf("%d bytes for each of %d leases, the store's part included; %d goroutines before and after", each, n, goroutines)
	if each > 800 {
		t.Errorf("%d bytes a lease, want at most 800", each)
	}
	for _, l := range leases {
		mustBe(t, l.Release(t.Context()), nil)
	}
}
