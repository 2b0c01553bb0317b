package rediscache

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

var errSilent = errors.New("the subscription's server does not answer")

// Listen subscribes, on a connection outside the client's pool, as [cache.Announcer] says. It
// returns when the connection has failed, or has been silent for 3 s and did not answer a
// ping within 3 s more.
func (s *Store) Listen(ctx context.Context, up func(), changed func(key string)) error {
	subscription, err := s.subscribe(ctx)
	if err != nil {
		return failure("listen", err)
	}
	err = s.receive(ctx, subscription, up, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return failure("listen", err)
}

// subscribe asks for the channel. A Cluster's masters tell each other what is published, so
// that any of them will do; go-redis by itself takes the one that has the slot of
// the channel's name, and while that is dead no other.
func (s *Store) subscribe(ctx context.Context) (*redis.PubSub, error) {
	client := s.client
	if c, ok := client.(clusterClient); ok {
		master, err := c.MasterForKey(ctx, strconv.Itoa(rand.Int()))
		if err != nil {
			return nil, err
		}
		client = master
	}
	subscription := client.Subscribe(ctx)
	if err := subscription.Subscribe(ctx, s.channel); err != nil {
		_ = subscription.Close() // there is nothing to lose
		return nil, err
	}
	return subscription, nil
}

// ended is the context that a subscription is used with. Reading and writing do not look
// at it. But when the connection has failed, go-redis makes another one with it, by itself and before
// it tells: that has to fail at once, for the caller believes to hear of changes until
// then. Dialing with TLS does not look at it either, and takes its time.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive takes what comes until the connection fails.
func (s *Store) receive(ctx context.Context, subscription *redis.PubSub, up func(), changed func(string)) error {
	var heard, silent atomic.Bool
	done := make(chan struct{})
	var health sync.WaitGroup
	defer health.Wait()
	defer close(done)
	health.Go(func() {
		silent.Store(s.checkHealth(ctx, subscription, &heard, done))
		_ = subscription.Close() // ends Receive
	})
	for {
		m, err := subscription.Receive(ended)
		if err != nil {
			if silent.Load() {
				return errSilent
			}
			return err
		}
		heard.Store(true)
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				up()
			}
		case *redis.Message:
			changed(m.Payload)
		}
	}
}

// checkHealth pings a silent subscription until it does not answer, which it reports, or
// is no longer needed. It pings at once too, so that a user without the right to is
// found out early.
func (s *Store) checkHealth(ctx context.Context, subscription *redis.PubSub, heard *atomic.Bool, done <-chan struct{}) (silent bool) {
	tick := time.NewTicker(s.check)
	defer tick.Stop()
	for asked := false; ; {
		switch {
		case heard.Swap(false):
			asked = false
		case asked:
			return true
		default:
			_ = subscription.Ping(ended) // Receive sees the broken connection, or the pong
			asked = true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		case <-done:
			return false
		}
	}
}
