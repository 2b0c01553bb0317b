package core

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// TestReleasedLeaseIsLeftOutOfARenewal is about releases that come when a batch of
// renewals has been made and not been sent, which takes a moment that only the scheduler
// can make longer.
func TestReleasedLeaseIsLeftOutOfARenewal(t *testing.T) {
	e, err := New(memlock.New(), WithNamespace("test"), WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	var leases []*Lease
	var batch []*tenure
	var renewals []driver.Renewal
	for _, key := range []string{"held", "released", "lingering", "held too"} {
		p := Policy{Key: key}
		if key == "lingering" {
			p.Linger = DefaultTTL / 2
		}
		l, err := e.Acquire(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		tn := l.hold.tenure
		tn.renewing = true
		leases, batch, renewals = append(leases, l), append(batch, tn), append(renewals, tn.renewal(DefaultTTL))
	}
	for _, l := range leases[1:3] {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	lingering := batch[2]
	batch, renewals = stillWanted(batch, renewals)
	if len(batch) != 2 || batch[0] != leases[0].hold.tenure || batch[1] != leases[3].hold.tenure {
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
