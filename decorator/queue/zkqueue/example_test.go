package zkqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// Refund is what is queued.
type Refund struct{ ID, OrderID string }

// Refunds of an order, one after the other, 2 s apart. The locks of several processes would be
// in ZooKeeper too, by package zklock.
func Example() {
	conn, _, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithDialer(zkqueue.Dial))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	store, err := zkqueue.New(conn, "/shop/queues")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, store, refund,
		serial.Policy{Spacing: 2 * time.Second})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_ = refunds.Work(ctx) // until ctx ends
	}()
	place, err := refunds.Enqueue(ctx, Refund{ID: "r-17", OrderID: "A-1"}, serial.ItemID("r-17"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(place.Ahead, "are ahead of it")
}

func refund(context.Context, Refund) error { return nil }
