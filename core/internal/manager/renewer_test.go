package manager

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
	"github.com/lockaround/lockaround/core/memlock"
)

// openManager returns a manager on a store, which is closed when the test has ended.
func openManager(t *testing.T, d driver.Driver) *Manager {
	t.Helper()
	mgr, err := Open(Config{
		Driver: d, Capabilities: d.Capabilities(), StoreTimeout: 3 * time.Second, MaxWaiters: 10, MaxHeld: 10,
		Logger: func() *slog.Logger { return slog.New(slog.DiscardHandler) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r := mgr.Close(); r != nil {
			t.Errorf("%+v", r)
		}
	})
	return mgr
}

// TestReleasedLeaseIsLeftOutOfARenewal is about releases that come when a batch of
// renewals has been made and not been sent, which takes a moment that only the scheduler
// can make longer.
func TestReleasedLeaseIsLeftOutOfARenewal(t *testing.T) {
	mgr := openManager(t, memlock.New())
	s, err := signals.New(nil, noop.NewMeterProvider(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 30 * time.Second
	var holds []*Hold
	var batch []*lease
	var renewals []driver.Renewal
	for _, key := range []string{"held", "released", "lingering", "held too"} {
		terms := &Terms{Signals: s.Of("", "exclusive"), TTL: ttl}
		if key == "lingering" {
			terms.Linger = ttl / 2
		}
		h, r := mgr.Acquire(t.Context(), terms, key, time.Second, nil)
		if r != nil {
			t.Fatalf("%+v", r)
		}
		h.lease.renewing = true
		holds, batch, renewals = append(holds, h), append(batch, h.lease), append(renewals, h.lease.renewal(ttl))
	}
	for _, h := range holds[1:3] {
		if r := h.Release(t.Context()); r != nil {
			t.Fatalf("%+v", r)
		}
	}
	lingering := batch[2]
	batch, renewals = stillWanted(batch, renewals)
	if len(batch) != 2 || batch[0] != holds[0].lease || batch[1] != holds[3].lease {
		t.Errorf("%d leases are to be renewed, want the 2 that are held", len(batch))
	}
	for i, r := range renewals {
		if r.ID != batch[i].ID {
			t.Errorf("renewal %d is of another lease", i)
		}
	}
	lingering.line.shard.mu.Lock()
	defer lingering.line.shard.mu.Unlock()
	if lingering.renewing {
		t.Error("a lease that was left out counts as being renewed")
	}
}

func TestLeaseThatIsAlmostOverHurriesNoOther(t *testing.T) {
	ms := func(left ...int) (all []renewable) {
		for _, n := range left {
			all = append(all, renewable{left: time.Duration(n) * time.Millisecond})
		}
		return all
	}
	for _, tc := range []struct {
		all  []renewable
		want []int // how many are renewed together
	}{
		{nil, nil},
		{ms(3000), []int{1}},
		{ms(3000, 2000, 1700), []int{3}},
		{ms(3000, 1, 2000), []int{1, 2}},
		{ms(1, 2, 9, 10, 11, 900, 400, 1000), []int{4, 1, 1, 2}},
		{ms(make([]int, 3*maxRenewals/2)...), []int{maxRenewals, maxRenewals / 2}},
	} {
		var got []int
		var last time.Duration
		for _, batch := range batches(tc.all) {
			got = append(got, len(batch))
			for _, r := range batch {
				if r.left < last || r.left > 2*max(batch[0].left, minPatience) {
					t.Errorf("%v is left of one beside one with %v, after one with %v", r.left, batch[0].left, last)
				}
				last = r.left
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v are renewed together; want %v", got, tc.want)
		}
	}
}
