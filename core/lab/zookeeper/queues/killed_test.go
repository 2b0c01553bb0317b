package queues_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// TestKilledWorkersLeaveOneEffectOfEachItem kills -9 worker processes at random times,
// as often as LOCKAROUND_COUNTS says, two of which work at a time, and stops the other one past its leases
// now and then. The effect of an item is a node that is made once. The numbers of the transactions that made them
// say in which order.
func TestKilledWorkersLeaveOneEffectOfEachItem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	kills := counts.Of(t, "kills", 6, 100)
	srv := zktest.Start(t, warm)
	p := own(t, srv.Addr())
	for _, path := range []string{"/shop", effects} {
		if _, err := p.conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			t.Fatal(err)
		}
	}
	plan := serialtest.Plan{Store: srv.Addr(), TTL: time.Second}
	f, err := plan.Function(p.locks, p.store, nothing)
	if err != nil {
		t.Fatal(err)
	}
	workers := [2]*child.Process{start(t, effectsRole, plan), start(t, effectsRole, plan)}
	const orders, each = 12, 5
	places := make([][]queue.Place, orders)
	for kill := range kills {
		for order := range orders { // there is always something to run
			for i := range each {
				id := fmt.Sprint(kill*each + i)
				place, err := f.Enqueue(t.Context(), serialtest.Item{ID: id, OrderID: fmt.Sprint(order)}, serial.ItemID(id))
				if err != nil {
					t.Fatal(err)
				}
				places[order] = append(places[order], place)
			}
		}
		time.Sleep(rand.N(100 * time.Millisecond))
		workers[kill%2].Kill()
		workers[kill%2] = start(t, effectsRole, plan)
		if other := workers[1-kill%2]; kill%3 == 0 { // it is paused past its leases
			if err := other.Stop(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(plan.TTL * 13 / 10)
			if err := other.Cont(); err != nil {
				t.Fatal(err)
			}
		}
	}
	items, repeated, found := 0, 0, 0
	for order, all := range places {
		last := int64(0)
		for i, place := range all {
			var s queue.Status
			eventually(t, "the end of all items", func() bool {
				s, err = f.Status(t.Context(), place.ID)
				return err == nil && s.State == queue.Ended
			})
			data, stat, err := p.conn.Get(path.Join(effects, fmt.Sprint(order, "-", i)))
			if err != nil {
				t.Fatalf("item %d of order %d is done, and its effect: %v", i, order, err)
			}
			if stat.Czxid <= last {
				t.Errorf("item %d of order %d had its effect before the one ahead of it", i, order)
			}
			items, last = items+1, stat.Czxid
			switch attempt := fmt.Sprint(s.Attempts); {
			case string(data) != attempt:
				found++
			case attempt != "1":
				repeated++
			}
		}
	}
	for _, w := range workers {
		w.Kill()
	}
	names, _, err := p.conn.Children(effects)
	if err != nil || len(names) != items || items != kills*orders*each {
		t.Errorf("%d effects of %d items, %v", len(names), items, err)
	}
	t.Logf("%d workers were killed while %d items ran: each has one effect; %d had it in a later attempt, and of %d a later one found it", kills, items, repeated, found)
}
