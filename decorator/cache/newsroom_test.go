package cache_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// newsroom is a process in which a writer changes the source and invalidates the cache, and
// readers see to it that they get no news from before a change whose invalidation had
// returned, in whatever process, when they asked.
type newsroom struct {
	newsroomPlan
	source *redis.Client
	cached *cache.Func[string, news]
	counts newsroomCounts
	until  time.Time
}

type newsroomPlan struct {
	Addr    string // of Redis
	Readers int
	For     time.Duration // how long all this goes on, at least
}

// news is a value: how many changes the source had seen.
type news struct{ Changes int64 }

type newsroomCounts struct {
	Gets, Loads, Refused, Changes atomic.Int64
}

// Keys in Redis.
const (
	sourceKey      = "source"      // how many changes there were
	invalidatedKey = "invalidated" // the last one whose invalidation has returned
	countsList     = "counts"
)

// raise sets a number unless it is larger.
var raise = redis.NewScript(`
	if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[1]) or 0) then redis.call('SET', KEYS[1], ARGV[1]) end
	return 1`)

// TestNewsroomProcess is a newsroom's program.
func TestNewsroomProcess(t *testing.T) { roomtest.Be(t, runNewsroom) }

func runNewsroom(plan newsroomPlan) (err error) {
	n := &newsroom{newsroomPlan: plan}
	n.source, n.until = roomtest.Client(plan.Addr), time.Now().Add(plan.For)
	rdb := roomtest.Client(plan.Addr)
	defer func() { err = errors.Join(err, n.source.Close(), rdb.Close()) }()
	store, err := rediscache.New(rdb, "test:cache:")
	if err != nil {
		return err
	}
	locks, err := roomtest.Locks(rdb)
	if err != nil {
		return err
	}
	n.cached = cache.Must(locks, core.Policy{Key: "news:{.}", Wait: roomtest.Patience, TTL: roomtest.Patience}, countingStore{store, &n.counts.Refused}, n.load,
		cache.Policy{Expiry: time.Minute})
	var staff sync.WaitGroup
	staff.Go(n.write)
	for range plan.Readers {
		staff.Go(n.read)
	}
	staff.Wait()
	n.cached.Close()
	counts := []int64{n.counts.Gets.Load(), n.counts.Loads.Load(), n.counts.Refused.Load(), n.counts.Changes.Load()}
	text, err := json.Marshal(counts)
	return errors.Join(err, locks.Close(), n.source.RPush(context.Background(), countsList, text).Err())
}

// countingStore counts what it refuses to store.
type countingStore struct {
	*rediscache.Store
	refused *atomic.Int64
}

func (s countingStore) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	stored, err := s.Store.Put(ctx, key, token, value, ttl)
	if !stored && err == nil {
		s.refused.Add(1)
	}
	return stored, err
}

// upTo waits for less than d.
func upTo(d time.Duration) { <-time.After(rand.N(d)) }

// goesOn also waits for what the test is about, a refused load and one that was not, for a
// while.
func (n *newsroom) goesOn() bool {
	refused, after := n.counts.Refused.Load(), time.Since(n.until)
	return after < 0 || after < roomtest.Patience && (refused == 0 || refused == n.counts.Loads.Load())
}

// write changes the source, and says so when the cache knows.
func (n *newsroom) write() {
	ctx := context.Background()
	for ; n.goesOn(); n.counts.Changes.Add(1) {
		upTo(100 * time.Millisecond)
		change, err := n.source.Incr(ctx, sourceKey).Result()
		if err = errors.Join(err, n.cached.Invalidate(ctx, "a")); err == nil {
			err = raise.Run(ctx, n.source, []string{invalidatedKey}, change).Err()
		}
		if err != nil {
			fmt.Println("write:", err)
			return
		}
	}
}

// read asks what it must know, and then for the news.
func (n *newsroom) read() {
	ctx := context.Background()
	for ; n.goesOn(); n.counts.Gets.Add(1) {
		upTo(10 * time.Millisecond)
		known, err := n.source.Get(ctx, invalidatedKey).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			fmt.Println("read:", err)
			return
		}
		got, err := n.cached.Get(ctx, "a")
		if err != nil || got.Changes < known {
			fmt.Printf("change %d had been invalidated, and then somebody got %d, %v\n", known, got.Changes, err)
			return
		}
	}
}

// load reads the source in the middle of its time.
func (n *newsroom) load(ctx context.Context, _ string) (news, error) {
	n.counts.Loads.Add(1)
	upTo(10 * time.Millisecond)
	changes, err := n.source.Get(ctx, sourceKey).Int64()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	upTo(10 * time.Millisecond)
	return news{changes}, err
}

func TestNobodyGetsWhatWasInvalidatedBeforeOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	t.Parallel()
	plan := newsroomPlan{Addr: testservers.Redis(t).Addr(), Readers: 10, For: 2 * time.Second}
	var all []*roomtest.Child
	for range 4 {
		all = append(all, roomtest.Start(t, "TestNewsroomProcess", plan))
	}
	for _, c := range all {
		if line := c.Read(); line != "ready" {
			t.Fatalf("a newsroom said %q", line)
		}
	}
	for _, c := range all {
		c.Begin(t)
	}
	for _, c := range all {
		for line := c.Read(); line != ""; line = c.Read() {
			t.Error(line)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("a newsroom's process: %v", err)
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: plan.Addr})
	defer func() { _ = rdb.Close() }()
	var sum [4]int64
	for _, text := range rdb.LRange(t.Context(), countsList, 0, -1).Val() {
		var counts [4]int64
		if err := json.Unmarshal([]byte(text), &counts); err != nil {
			t.Fatal(err)
		}
		for i, n := range counts {
			sum[i] += n
		}
	}
	gets, loads, refused, changes := sum[0], sum[1], sum[2], sum[3]
	t.Logf("%d gets, %d loads of which %d were refused, %d changes", gets, loads, refused, changes)
	if refused == 0 || refused == loads {
		t.Errorf("%d of %d loads were refused; this tells nothing unless it is some of them", refused, loads)
	}
}
