package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// listen receives on a subscription with a connection of its own. It returns after the
// second reconnection in a row that fails: the session decides when to try again.
func (w *clientWire) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	client, err := w.subscriber(ctx)
	if err != nil {
		return classify(err)
	}
	subscription := client.Subscribe(ctx)
	defer func() { _ = subscription.Close() }() // a second closing only says so
	if err := subscription.Subscribe(ctx, channel); err != nil {
		w.reloadAfterSilence([]reply{{err: err}})
		return classify(err)
	}
	var heard atomic.Bool
	var health sync.WaitGroup
	done := make(chan struct{})
	defer health.Wait()
	defer close(done)
	health.Go(func() { w.checkHealth(ctx, subscription, &heard, done) })

	for failed := false; ; {
		m, err := subscription.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			heard.Store(true)
		case failed || isReply(err) || errors.Is(err, redis.ErrClosed):
			w.reloadAfterSilence([]reply{{err: err}})
			return classify(err)
		default:
			failed = true // Receive has reconnected, or tries when called again
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				failed = false
				up()
			}
		case *redis.Message:
			message(m.Payload)
		}
	}
}

// subscriber returns the client to subscribe with. The masters of a Cluster pass messages
// on to each other, so that any of them will do; each call takes another one if it can.
// go-redis by itself would always take the master that has the slot of the channel's name,
// even while that one is dead.
func (w *clientWire) subscriber(ctx context.Context) (redis.UniversalClient, error) {
	if w.cluster == nil {
		return w.client, nil
	}
	const tries = 16
	for i := 1; ; i++ {
		master, err := w.cluster.MasterForKey(ctx, strconv.Itoa(rand.Int()))
		if err != nil {
			return nil, err
		}
		if master != w.subscribed.Load() || i == tries {
			w.subscribed.Store(master)
			return master, nil
		}
	}
}

// checkHealth pings a silent subscription and closes a dead one. The first ping leaves at
// once, so that a missing right to ping shows early.
func (w *clientWire) checkHealth(ctx context.Context, s *redis.PubSub, heard *atomic.Bool, done <-chan struct{}) {
	tick := time.NewTicker(w.check)
	defer tick.Stop()
	for asked := false; ; {
		if heard.Swap(false) {
			asked = false
		} else if asked {
			_ = s.Close()
			return
		} else {
			_ = s.Ping(ctx) // Receive sees the broken connection, or the pong
			asked = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = s.Close() // ends Receive
			return
		case <-done:
			return
		}
	}
}
