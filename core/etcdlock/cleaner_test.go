package etcdlock

import (
	"context"
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// The mark of a lease that was given up is on another lease, which etcd may end before its time.
func TestPlaceIsCleanedUpThoughTheLeaseForMarksHasEnded(t *testing.T) {
	t.Parallel()
	s := newTravelling(t)
	marks, err := s.leaseForAliveKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.revoke(t.Context(), marks); err != nil {
		t.Fatal(err)
	}
	g := s.take("k")
	on := s.claims.get(g.ID).leases[0]
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Release(ended, []driver.Ending{{ID: g.ID, Deadline: g.Deadline}})[0]; !errors.Is(err, context.Canceled) {
		t.Fatalf("a release whose context has ended returns %v", err)
	}
	if !s.debts.Drain(t.Context()) {
		t.Fatal("the clean-up was given up")
	}
	if n := s.places("k"); n != 0 {
		t.Errorf("after the clean-up the key has %d places", n)
	}
	if left, err := s.client.TimeToLive(t.Context(), on); err != nil || left.TTL >= 0 {
		t.Errorf("after the clean-up the lease of the place is %v, %v", left, err)
	}
}
