package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// lateClient goes late where a master of the Cluster sends it: the first time
// after it was armed.
type lateClient struct {
	*redis.ClusterClient
	armed chan struct{} // full until then
	sent  chan struct{} // closed when it was sent on
	gate  chan struct{} // closed to let it go there
}

func newLateClient(c *testservers.Cluster) *lateClient {
	l := &lateClient{armed: make(chan struct{}, 1), sent: make(chan struct{}), gate: make(chan struct{})}
	l.ClusterClient = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(),
		NewClient: func(o *redis.Options) *redis.Client {
			node := redis.NewClient(o)
			node.AddHook(l)
			return node
		},
	})
	return l
}

// DialHook changes nothing.
func (*lateClient) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes nothing.
func (*lateClient) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook holds ASKING back, with the commands that it is for.
func (l *lateClient) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "asking" {
			select {
			case <-l.armed:
				close(l.sent)
				<-l.gate
			default:
			}
		}
		return next(ctx, cmds)
	}
}

// TestClusterLateRedirectionIsNotBelieved has a command arrive where a master has
// sent its client when the slot has moved there and back and begins to move there
// once more. The master there serves it without the key, which is not there.
func TestClusterLateRedirectionIsNotBelieved(t *testing.T) {
	t.Parallel()
	acquire := func(wait time.Duration, want error) func(*testing.T, *engine, *core.Lease, string) {
		return func(t *testing.T, e *engine, _ *core.Lease, key string) {
			lease, err := e.Acquire(t.Context(), core.Policy{Key: key, Wait: wait})
			if !errors.Is(err, want) {
				t.Errorf("acquire of a key that another process holds: %v, want %v", err, want)
			}
			if lease != nil {
				giveBack(t, lease)
			}
		}
	}
	for _, test := range []struct {
		name string
		held bool // by the process that goes late, and by another one if not
		late func(t *testing.T, e *engine, lease *core.Lease, key string)
		free bool // the key, after that
	}{
		{name: "acquire", late: acquire(0, core.ErrBusy)},
		{name: "acquire and wait", late: acquire(4*time.Second, core.ErrTimeout)},
		{name: "renew", held: true, late: func(t *testing.T, _ *engine, lease *core.Lease, _ string) {
			if err := lease.Check(t.Context()); err != nil {
				t.Errorf("a lease that is held: %v", err)
			}
		}},
		{name: "release", held: true, free: true, late: func(t *testing.T, _ *engine, lease *core.Lease, _ string) {
			giveBack(t, lease)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := testservers.RedisCluster(t, 2, 0)
			here, there := c.Masters()[0], c.Masters()[1]
			key, slot := keyOn(t, c, here, 0)
			client := newLateClient(c)
			for _, s := range protocol.Scripts() {
				if err := client.ScriptLoad(t.Context(), s.Source).Err(); err != nil {
					t.Fatal(err)
				}
			}
			late, other := newEngine(t, client, core.WithStoreTimeout(10*hang)), member(t, c)
			lease := late.take(t, key, lasting)
			if !test.held {
				giveBack(t, lease)
			}

			done := make(chan struct{})
			c.Move(slot, there, func() {
				client.armed <- struct{}{}
				go func() {
					defer close(done)
					test.late(t, late, lease, key)
				}()
				<-client.sent
			})
			for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
				c.Move(slot, here)
				c.Move(slot, there)
			}
			c.Move(slot, here)
			if !test.held {
				lease = other.take(t, key, lasting)
			}
			c.BeginMove(slot, there)
			close(client.gate)
			<-done

			next, err := other.Acquire(t.Context(), core.Policy{Key: key})
			if free := err == nil; free != test.free {
				t.Errorf("then the key is free: %v (%v), want %v", free, err, test.free)
			}
			c.Move(slot, there)
			if next != nil {
				giveBack(t, next)
			}
			if !test.free {
				if err := lease.Check(t.Context()); err != nil {
					t.Errorf("the holder: %v", err)
				}
				giveBack(t, lease)
			}
		})
	}
}
