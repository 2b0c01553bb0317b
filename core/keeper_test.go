package core

import (
	"log/slog"
	"testing"

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
