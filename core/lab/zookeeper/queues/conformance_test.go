package queues_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/queuetest"
	"github.com/lockaround/lockaround/decorator/queue/zkqueue"
)

func TestConformance(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			srv := zktest.Start(t, warm)
			queuetest.Run(t, func(t *testing.T) *queuetest.Harness {
				link := zktest.NewProxy(t, srv.Addr())
				store := newStore(t, dial(t, link.Addr()), zkqueue.WithShards(shards))
				h := &queuetest.Harness{
					Store:      store,
					Peer:       newStore(t, dial(t, srv.Addr()), zkqueue.WithShards(shards)),
					MaxPayload: store.MaxPayload(),
				}
				if shards == 1 { // a claim in a shard without keys writes nothing of which the reply could be lost
					h.LoseReply = func() func() bool { return link.DropReply(zktest.AnyOf(zktest.Multi)) }
				}
				return h
			})
		})
	}
}

// synced is a store that reads nothing of a server that is behind where this would show. A worker
// hears of what its server did not have yet when it looked.
type synced struct {
	*zkqueue.Store
	conn *zk.Conn
}

type syncedQueue struct {
	queue.Queue
	conn *zk.Conn
}

func (s synced) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := s.Store.Open(name, r)
	return syncedQueue{q, s.conn}, err
}

func (q syncedQueue) sync() { _, _ = q.conn.Sync(root) }

func (q syncedQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	q.sync()
	return q.Queue.Claim(ctx, r)
}

func (q syncedQueue) Parked(ctx context.Context, limit int) ([]queue.Parked, error) {
	q.sync()
	return q.Queue.Parked(ctx, limit)
}

func (q syncedQueue) Stats(ctx context.Context) (queue.Stats, error) {
	q.sync()
	return q.Queue.Stats(ctx)
}

// TestConformanceOfAnEnsemble has its two processes at different followers, which may be behind each
// other.
func TestConformanceOfAnEnsemble(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	var followers []*testservers.Server
	for _, s := range zktest.StartEnsemble(t, 3, warm) {
		if s.Mode() == "follower" {
			followers = append(followers, s)
		}
	}
	if len(followers) != 2 {
		t.Fatalf("%d followers of 3 servers", len(followers))
	}
	queuetest.Run(t, func(t *testing.T) *queuetest.Harness {
		link := zktest.NewProxy(t, followers[0].Addr())
		store := newStore(t, dial(t, link.Addr()))
		return &queuetest.Harness{
			Store:      synced{store, dial(t, followers[0].Addr())},
			Peer:       synced{newStore(t, dial(t, followers[1].Addr())), dial(t, followers[1].Addr())},
			MaxPayload: store.MaxPayload(),
			LoseReply:  func() func() bool { return link.DropReply(zktest.AnyOf(zktest.Multi)) },
		}
	})
}
