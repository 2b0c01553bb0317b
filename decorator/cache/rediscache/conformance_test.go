package rediscache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/cachetest"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/redisnet"
)

func TestConformance(t *testing.T) {
	for _, o := range []redis.Options{{}, {Protocol: 2, MaxRetries: -1}} {
		t.Run(fmt.Sprintf("RESP%d, %d retries", o.Protocol, o.MaxRetries), func(t *testing.T) {
			s := startServer(t, "--databases", "100")
			db := 0
			cachetest.Run(t, func(t *testing.T) *cachetest.Harness {
				databases.Lock()
				defer databases.Unlock()
				db++
				o, n := o, redisnet.New()
				o.DB = db
				direct := s.client(o)
				return &cachetest.Harness{
					Store:     newStore(t, s.client(n.By(o))),
					Peer:      newStore(t, direct),
					LoseReply: n.LoseReply,
					Forget: func() {
						if err := direct.FlushDB(t.Context()).Err(); err != nil {
							t.Fatal(err)
						}
					},
				}
			})
		})
	}
}

// databases guards the number of the last one that a check was given.
var databases sync.Mutex

func TestConformanceInACluster(t *testing.T) {
	addrs := testservers.RedisCluster(t, 2, 0, "--cluster-node-timeout", "120000").Addrs()
	store := func(t *testing.T) *rediscache.Store {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { closeClient(t, c) })
		return newStore(t, c)
	}
	cachetest.Run(t, func(t *testing.T) *cachetest.Harness {
		return &cachetest.Harness{Store: store(t), Peer: store(t)}
	})
}

// heard is a store that tells when it has heard of a change.
type heard struct {
	*rediscache.Store
	up chan struct{}

	mu   sync.Mutex
	what map[string]bool
}

func (h *heard) Listen(ctx context.Context, up func(), changed func(string)) error {
	return h.Store.Listen(ctx, func() {
		up()
		select {
		case h.up <- struct{}{}:
		default:
		}
	}, func(key string) {
		changed(key)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.what[key] = true
	})
}

func (h *heard) of(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.what[key]
}

// newTiered returns a store with copies, which has subscribed.
func newTiered(t *testing.T, c redis.UniversalClient) (*cache.Tiered, *heard) {
	t.Helper()
	h := &heard{Store: newStore(t, c), up: make(chan struct{}, 1), what: make(map[string]bool)}
	tiered, err := cache.NewTiered(cache.Limits{Entries: 1000}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tiered.Close() })
	<-h.up
	return tiered, h
}

func TestConformanceWithCopies(t *testing.T) {
	s := startServer(t)
	cachetest.Run(t, func(t *testing.T) *cachetest.Harness {
		n := redisnet.New()
		store, hears := newTiered(t, s.client(n.By(redis.Options{})))
		peer, peerHears := newTiered(t, s.client(redis.Options{}))
		marks := 0
		return &cachetest.Harness{
			Store: store, Peer: peer, LoseReply: n.LoseReply,
			Settle: func() {
				marks++
				mark := fmt.Sprint(t.Name(), marks)
				if err := hears.Invalidate(t.Context(), mark); err != nil {
					t.Fatal(err)
				}
				// What was published before has been heard before.
				until(t, "the changes to be heard", func() bool { return hears.of(mark) && peerHears.of(mark) })
			},
		}
	})
}
