package watch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/watch"
)

// A page for operators shows who holds what, as long as somebody looks at it.
func Example() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:test"), core.WithIdentity("pod-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	stock := core.Policy{Name: "stock", Key: "stock:42", TTL: time.Minute}
	err = locks.Do(ctx, stock, func(ctx context.Context) error {
		w, err := watch.New(ctx, locks) // until ctx ends
		if err != nil {
			return err
		}
		<-w.Changed()
		for _, key := range w.View().Keys {
			for _, h := range key.Holders {
				fmt.Printf("%s is held by %s for policy %s\n", key.Key, h.Identity, h.Policy)
			}
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: stock:42 is held by pod-1 for policy stock
}
