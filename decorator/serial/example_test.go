package serial_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// The refunds of one order run one after the other, in order; one that is asked for twice runs once.
func ExampleMust() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	type Refund struct{ ID, OrderID string }
	done := make(chan struct{}, 2)
	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, queue.NewMemory(),
		func(_ context.Context, r Refund) error {
			fmt.Println("refund", r.ID)
			done <- struct{}{}
			return nil
		}, serial.Policy{OnDead: serial.Hold})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- refunds.Work(ctx) }()
	for _, id := range []string{"r-1", "r-1", "r-2"} {
		if _, err := refunds.Enqueue(ctx, Refund{ID: id, OrderID: "A-1"}, serial.ItemID(id)); err != nil {
			fmt.Println(err)
		}
	}
	<-done
	<-done
	cancel()
	fmt.Println(<-ended)
	// Output:
	// refund r-1
	// refund r-2
	// context canceled
}
