package decorator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// crowd is a process with many callers who all want the current edition, which is loaded
// from a source that takes its time. What happens is written down in Redis.
type crowd struct {
	*rediscache.Store
	crowdPlan
	source  *redis.Client // the loader's own
	cached  *decorator.CachedFunc[string, edition]
	trip    atomic.Int64 // of the last Claim, in microseconds
	loaded  atomic.Int64 // the last edition that this process has loaded
	over    atomic.Bool  // a caller has the last edition
	mu      sync.Mutex
	reports map[int64]*editionReport // by edition, since the last time they were written down
}

type crowdPlan struct {
	Addr    string // a Unix socket
	Callers int
	Expiry  time.Duration
	Load    time.Duration // how long one takes
	TTL     time.Duration // of the lock
	Last    int64         // the edition that does not end, so that callers can stop in peace
	Hang    []int64       // loads that hang, so that their process can be killed; the first is 1
}

// edition is a value: how many loads had been completed with it.
type edition struct{ Number int64 }

// editionReport is what the callers of a process have to say about an edition. Times are in
// microseconds of the machine's clock, which is also the server's.
type editionReport struct {
	Edition  int64
	Gets     int64
	Latest   int64 // beginning of a Get that returned it
	Earliest int64 // return of one that did
	Longest  int64 // duration of one that did
}

// Lists in Redis.
const (
	begunList  = "begun"   // loads that began
	endedList  = "ended"   // and ended, with their numbers
	storedList = "stored"  // editions that were stored
	reportList = "reports" // of callers
)

// stamp appends to a list, with the server's time in microseconds, and returns its length.
var stamp = redis.NewScript(`
	local t = redis.call('TIME')
	return redis.call('RPUSH', KEYS[1], string.format('%.0f ', t[1] * 1000000 + t[2]) .. ARGV[1])`)

// TestCrowdProcess is a crowd's program.
func TestCrowdProcess(t *testing.T) { roomtest.Be(t, runCrowd) }

func runCrowd(plan crowdPlan) (err error) {
	c := &crowd{crowdPlan: plan, reports: make(map[int64]*editionReport)}
	c.source = roomtest.Client(plan.Addr)
	rdb := roomtest.Client(plan.Addr)
	defer func() { err = errors.Join(err, c.source.Close(), rdb.Close()) }()
	if c.Store, err = rediscache.New(rdb, "test:cache:"); err != nil {
		return err
	}
	locks, err := roomtest.Locks(rdb)
	if err != nil {
		return err
	}
	c.cached = decorator.Cached(locks, core.Policy{Key: "edition:{.}", Wait: roomtest.Patience, TTL: plan.TTL}, c, c.load,
		decorator.CachePolicy{Expiry: plan.Expiry})
	var callers sync.WaitGroup
	for range plan.Callers {
		callers.Go(c.call)
	}
	callers.Wait()
	c.cached.Close()
	return errors.Join(locks.Close(), c.writeReports(context.Background()))
}

// call wants an edition again and again, until there is the last one.
func (c *crowd) call() {
	for {
		<-time.After(rand.N(c.Expiry + c.Load))
		if c.over.Load() {
			return
		}
		began := time.Now()
		e, err := c.cached.Get(context.Background(), "a")
		if err != nil {
			fmt.Println("get:", err)
			return
		}
		c.report(e.Number, began, time.Now())
		if e.Number >= c.Last {
			c.over.Store(true)
		}
	}
}

func (c *crowd) report(number int64, began, returned time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.reports[number]
	if r == nil {
		r = &editionReport{Edition: number, Earliest: returned.UnixMicro()}
		c.reports[number] = r
	}
	r.Gets++
	r.Latest = max(r.Latest, began.UnixMicro())
	r.Earliest = min(r.Earliest, returned.UnixMicro())
	r.Longest = max(r.Longest, returned.Sub(began).Microseconds())
}

// writeReports also makes them survive the process, if that is killed in the load that
// follows.
func (c *crowd) writeReports(ctx context.Context) error {
	c.mu.Lock()
	reports := slices.Collect(maps.Values(c.reports))
	clear(c.reports)
	c.mu.Unlock()
	text, err := json.Marshal(reports)
	return errors.Join(err, c.source.RPush(ctx, reportList, text).Err())
}

// load is the source of editions.
func (c *crowd) load(ctx context.Context, _ string) (edition, error) {
	lease, _ := core.LeaseFrom(ctx)
	n, err := stamp.Run(ctx, c.source, []string{begunList}, fmt.Sprint(c.trip.Load(), lease.Deadline().UnixMicro())).Int64()
	if err := errors.Join(err, c.writeReports(ctx)); err != nil {
		return edition{}, err
	}
	if slices.Contains(c.Hang, n) {
		fmt.Println(roomtest.Hangs)
		select {}
	}
	if err := takes(c.Load)(ctx, ""); err != nil {
		return edition{}, err
	}
	number, err := stamp.Run(ctx, c.source, []string{endedList}, n).Int64()
	c.loaded.Store(number)
	return edition{number}, err
}

// Claim measures how long it takes: a value that may end before the answer is there has
// ended for whoever claims.
func (c *crowd) Claim(ctx context.Context, key string, token int64, ttl time.Duration) (cache.Entry, error) {
	began := time.Now()
	e, err := c.Store.Claim(ctx, key, token, ttl)
	c.trip.Store(time.Since(began).Microseconds())
	return e, err
}

// Put has the last edition stay.
func (c *crowd) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	number := c.loaded.Load()
	if number == c.Last {
		ttl = time.Hour
	}
	stored, err := c.Store.Put(ctx, key, token, value, ttl)
	if stored && err == nil {
		err = stamp.Run(ctx, c.source, []string{storedList}, number).Err()
	}
	return stored, err
}
