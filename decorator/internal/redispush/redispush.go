// Package redispush is what the stores below decorator do alike with a client of Redis: which
// clients they take, and how they hear of what is published.
package redispush

import (
	"context"
	"crypto/fips140"
	"errors"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var errSilent = errors.New("the subscription's server does not answer")

// Usable returns an error unless the client reaches one master for each key, and reads
// from no replica.
func Usable(client redis.UniversalClient) error {
	v := reflect.ValueOf(client)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("the client is nil; pass one made by redis.NewClient or redis.NewClusterClient")
	}
	switch c := client.(type) {
	case *redis.Ring:
		return errors.New("the client is a *redis.Ring, which takes keys elsewhere when a server is down; pass a *redis.Client or a *redis.ClusterClient")
	case clusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New("the client reads from replicas, which lag behind what was written; pass one without ReadOnly, RouteByLatency and RouteRandomly")
		}
	}
	return nil
}

// clusterClient is a *redis.ClusterClient or what embeds one.
type clusterClient interface {
	Options() *redis.ClusterOptions
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// Script returns one that EVALSHA names by its SHA-1, which protects nothing.
func Script(source string) (s *redis.Script) {
	fips140.WithoutEnforcement(func() { s = redis.NewScript(source) })
	return s
}

// Channel is a channel, and how to reach it.
type Channel struct {
	Client redis.UniversalClient
	Name   string
	Check  time.Duration // how long a subscription may be silent before it is pinged, and the answer may take
}

// Listen subscribes, on a connection outside the client's pool. It calls up when it has begun to
// hear, and heard with every message, both by one goroutine. It returns when ctx has ended, with its
// error, when the connection has failed, or has been silent for Check and did not answer a ping
// within Check more. If up is called again, messages may have been missed before.
func (c Channel) Listen(ctx context.Context, up func(), heard func(message string)) error {
	subscription, err := c.subscribe(ctx)
	if err != nil {
		return err
	}
	err = c.receive(ctx, subscription, up, heard)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// subscribe asks for the channel. A Cluster's masters tell each other what is published, so
// that any of them will do; go-redis by itself takes the one that has the slot of
// the channel's name, and while that is dead no other.
func (c Channel) subscribe(ctx context.Context) (*redis.PubSub, error) {
	client := c.Client
	if cluster, ok := client.(clusterClient); ok {
		master, err := cluster.MasterForKey(ctx, strconv.Itoa(rand.Int()))
		if err != nil {
			return nil, err
		}
		client = master
	}
	subscription := client.Subscribe(ctx)
	if err := subscription.Subscribe(ctx, c.Name); err != nil {
		_ = subscription.Close() // there is nothing to lose
		return nil, err
	}
	return subscription, nil
}

// ended is the context that a subscription is used with. Reading and writing do not look
// at it. But when the connection has failed, go-redis makes another one with it, by itself and before
// it tells: that has to fail at once, for the caller believes to hear until then. Dialing with TLS does not look at it either, and takes its time.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive takes what comes until the connection fails.
func (c Channel) receive(ctx context.Context, subscription *redis.PubSub, up func(), heard func(string)) error {
	var alive, silent atomic.Bool
	done := make(chan struct{})
	var health sync.WaitGroup
	defer health.Wait()
	defer close(done)
	health.Go(func() {
		silent.Store(c.checkHealth(ctx, subscription, &alive, done))
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
		alive.Store(true)
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				up()
			}
		case *redis.Message:
			heard(m.Payload)
		}
	}
}

// checkHealth pings a silent subscription until it does not answer, which it reports, or
// is no longer needed. It pings at once too, so that a user without the right to is
// found out early.
func (c Channel) checkHealth(ctx context.Context, subscription *redis.PubSub, alive *atomic.Bool, done <-chan struct{}) (silent bool) {
	tick := time.NewTicker(c.Check)
	defer tick.Stop()
	for asked := false; ; {
		switch {
		case alive.Swap(false):
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
