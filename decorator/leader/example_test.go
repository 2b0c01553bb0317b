package leader_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/leader"
)

// One process of several leads. The others wait in Run, and the next one follows when the
// leader resigns, ends or dies.
func ExampleMust() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	ctx, cancel := context.WithCancel(context.Background())
	indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer", TTL: 10 * time.Second},
		func(ctx context.Context) error {
			lease, ok := core.LeaseFrom(ctx)
			fmt.Println("leads:", ok && lease.Token() > 0)
			cancel() // in a program, the end of the process
			<-ctx.Done()
			return nil
		})
	fmt.Println(indexer.Run(ctx))

	// Output:
	// leads: true
	// context canceled
}

// An observer hears who leads, in whichever process, without asking again and again.
func ExampleRunner_Observe() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()
	leading := make(chan struct{})
	indexer := leader.Must(locks, core.Policy{Name: "indexer", Key: "indexer"}, func(ctx context.Context) error {
		close(leading)
		<-ctx.Done()
		return nil
	})

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	news, err := indexer.Observe(ctx)
	if err != nil {
		fmt.Println(err) // the store has no shared locks
		return
	}
	fmt.Println("term 0, nobody leads:", (<-news).Term == 0)

	over := make(chan error)
	go func() { over <- indexer.Run(ctx) }()
	<-leading
	n := <-news
	for !n.Mine { // the store said that somebody leads before this process knew that it does
		n = <-news
	}
	fmt.Println("this process leads:", n.Mine, n.Term == indexer.Status().Term)
	cancel()
	fmt.Println(<-over)

	// Output:
	// term 0, nobody leads: true
	// this process leads: true true
	// context canceled
}

func newLocks() *core.Engine {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	return locks
}
