package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/examples/extra/orders/orderspb"
)

func TestReplicasShareTheirLocksInRedis(t *testing.T) {
	// Nobody's wait is over before all have been served, however busy the machine is.
	patient := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(patient, []byte("policies: {place: {wait: 5m}, take: {wait: 5m}, put-back: {wait: 5m}, charge: {wait: 5m}, pay-back: {wait: 5m}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := options{redis: testservers.Redis(t).Addr(), policies: patient, latency: 100 * time.Microsecond}
	db := newDatabase(assortment(), o.trip)
	var replicas [2]orderspb.OrdersClient
	for i := range replicas {
		locks, err := openLocks(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		s, err := open("127.0.0.1:0", locks, db)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		replicas[i] = orderspb.NewOrdersClient(dial(t, s.address))
	}
	errs := atOnce(customers, func(i int) error {
		_, err := replicas[i%2].PlaceOrder(t.Context(), order(numbered("o", i), numbered("c", i), "book"))
		return err
	})
	tallied(t, errs, map[codes.Code]int{codes.OK: 40, codes.ResourceExhausted: 60})
}
