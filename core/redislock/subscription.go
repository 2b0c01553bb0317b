package redislock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// listen receives on a subscription with a connection of its own. It returns after the
// second reconnection in a row that fails: the session decides when to try again.
func (w *clientWire) listen(ctx context.Context, channel string, t *topics, up func(), message func(string)) error {
	client, err := w.subscriber(ctx)
	if err != nil {
		return classify(err)
	}
	subscription := client.Subscribe(ctx)
	defer func() { _ = subscription.Close() }() // a second closing only says so
	all := t.begin()
	if err := subscription.Subscribe(ctx, append([]string{channel}, all...)...); err != nil {
		w.reloadAfterSilence([]answer{{err: err}})
		return classify(err)
	}
	var heard atomic.Bool
	var health sync.WaitGroup
	done := make(chan struct{})
	defer health.Wait()
	defer close(done)
	health.Go(func() { w.checkHealth(ctx, subscription, &heard, t, all, done) })

	for failed := false; ; {
		m, err := subscription.Receive(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			heard.Store(true)
		case failed || isReply(err) || errors.Is(err, redis.ErrClosed):
			w.reloadAfterSilence([]answer{{err: err}})
			return classify(err)
		default:
			failed = true // Receive has reconnected, or tries when called again
			continue
		}
		switch m := m.(type) {
		case *redis.Subscription:
			switch {
			case m.Kind != "subscribe":
				t.down(m.Channel)
			case m.Channel == channel:
				failed = false
				w.deletes.forget()
				up()
			default:
				t.up(m.Channel)
			}
		case *redis.Message:
			if m.Channel == channel {
				message(m.Payload)
			} else {
				t.heard(m.Channel, m.Payload)
			}
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
		master, err := w.anyMaster(ctx)
		if err != nil {
			return nil, err
		}
		if master != w.subscribed.Load() || i == tries {
			w.subscribed.Store(master)
			return master, nil
		}
	}
}

// anyMaster returns a master of a Cluster, at random.
func (w *clientWire) anyMaster(ctx context.Context) (*redis.Client, error) {
	return w.cluster.MasterForKey(ctx, strconv.Itoa(rand.Int()))
}

// tell publishes at any master of a Cluster: each passes it on to the others.
func (w *clientWire) tell(ctx context.Context, channel string, message []byte) error {
	client := w.client
	if w.cluster != nil {
		master, err := w.anyMaster(ctx)
		if err != nil {
			return classify(err)
		}
		client = master
	}
	err := client.Publish(ctx, channel, message).Err()
	w.reloadAfterSilence([]answer{{err: err}})
	return w.classify(err)
}

// follow makes the subscription one to all channels of the topics, instead of those that it was
// to. It returns the new ones.
func (t *topics) follow(ctx context.Context, s *redis.PubSub, were []string) []string {
	all := t.channels()
	without := func(from, what []string) []string {
		return slices.DeleteFunc(slices.Clone(from), func(c string) bool { return slices.Contains(what, c) })
	}
	// Receive sees the broken connection, if it is.
	if more := without(all, were); len(more) > 0 {
		_ = s.Subscribe(ctx, more...)
	}
	if gone := without(were, all); len(gone) > 0 {
		_ = s.Unsubscribe(ctx, gone...)
	}
	return all
}

// checkHealth pings a silent subscription and closes a dead one. The first ping leaves at
// once, so that a missing right to ping shows early. It also follows the topics, of which the
// subscription has all.
func (w *clientWire) checkHealth(ctx context.Context, s *redis.PubSub, heard *atomic.Bool, t *topics, all []string, done <-chan struct{}) {
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
		for waits := true; waits; {
			select {
			case <-tick.C:
				waits = false
			case <-t.changed:
				all = t.follow(ctx, s, all)
			case <-ctx.Done():
				_ = s.Close() // ends Receive
				return
			case <-done:
				return
			}
		}
	}
}
