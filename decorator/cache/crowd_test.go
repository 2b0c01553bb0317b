package cache_test

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
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

const (
	crowds   = 4
	everyone = 1000 // callers, in all crowds

	crowdExpiry = 100 * time.Millisecond
	crowdLoad   = 100 * time.Millisecond
	crowdTTL    = 10 * time.Second // of a lock whose holder may be killed

	// oneKillIn is how many expiries there are for each loader that is killed.
	oneKillIn = 10
)

// late is by how much a machine may be late with what comes between a loader's beginning and
// its successor's: to kill the one, to wake the other. It is 2 s where figures are
// taken. A busy machine may take longer; callers who are never let in wait for minutes.
func late(t testing.TB) time.Duration {
	t.Helper()
	if counts.Full(t) {
		return 2 * time.Second
	}
	return 20 * time.Second
}

// expiries is how many values are to end while everybody wants them: 20, or 100 if full counts
// are asked for, or as many as LOCKAROUND_COUNTS says.
func expiries(t *testing.T) int {
	t.Helper()
	n := counts.Of(t, "expiries", 20, 100)
	if n < oneKillIn {
		t.Fatalf("%s has expiries=%d; a number from %d is right", counts.Variable, n, oneKillIn)
	}
	return n
}

func TestEachExpiryIsOneLoadOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for many expiries")
	}
	t.Parallel()
	f := newFair(t, expiries(t), 0)
	f.run()
	f.check()
}

func TestKilledLoadersAreSucceededOverProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for seconds")
	}
	t.Parallel()
	n := expiries(t)
	f := newFair(t, n, n/oneKillIn)
	f.run()
	f.check()
}

// fair is where crowds want editions: the first, and one for each expiry.
type fair struct {
	*testing.T
	crowdPlan
	rdb    *redis.Client
	killed []time.Time // when loaders were
}

func newFair(t *testing.T, expiries, kills int) *fair {
	f := &fair{T: t, crowdPlan: crowdPlan{
		Addr: testservers.Redis(t).Addr(), Callers: everyone / crowds,
		Expiry: crowdExpiry, Load: crowdLoad, TTL: roomtest.Patience, Last: int64(1 + expiries),
	}}
	if kills > 0 {
		f.TTL = crowdTTL
	}
	f.rdb = roomtest.Client(f.Addr)
	t.Cleanup(func() { _ = f.rdb.Close() })
	for n := range kills {
		f.Hang = append(f.Hang, int64(n*(oneKillIn+1)+oneKillIn/2))
	}
	return f
}

// run starts the crowds, replaces each one that hangs in a load and is killed, and returns
// when all have seen the last edition.
func (f *fair) run() {
	type said struct {
		*roomtest.Child
		line string
	}
	lines := make(chan said)
	var all []*roomtest.Child
	start := func() {
		c := roomtest.Start(f.T, "TestCrowdProcess", f.crowdPlan)
		all = append(all, c)
		go func() {
			for line := c.Read(); line != ""; line = c.Read() {
				lines <- said{c, line}
			}
			lines <- said{c, ""}
		}()
	}
	for range crowds {
		start()
	}
	killed := make(map[*roomtest.Child]bool)
	for ready, ended := 0, 0; ended < len(all); {
		switch s := <-lines; s.line {
		case "ready":
			if ready++; ready == crowds {
				for _, c := range all {
					c.Begin(f.T)
				}
			}
		case roomtest.Hangs:
			f.killed, killed[s.Child] = append(f.killed, time.Now()), true
			s.Kill()
			start()
			all[len(all)-1].Begin(f.T)
		case "":
			if err := s.Wait(); err != nil && !killed[s.Child] {
				f.Errorf("a crowd's process: %v", err)
			}
			ended++
		default:
			f.Errorf("a crowd said %q", s.line)
		}
	}
}

// begun is a load's beginning by the server's clock, how long the Claim before it took,
// and the deadline of its lease; in microseconds.
type begun struct{ at, trip, deadline int64 }

// stamped is when a load ended, or an edition was stored, and its number.
type stamped struct{ at, number int64 }

func (b *begun) fields() []any   { return []any{&b.at, &b.trip, &b.deadline} }
func (s *stamped) fields() []any { return []any{&s.at, &s.number} }

func list[T any](f *fair, name string, fields func(*T) []any) []T {
	f.Helper()
	lines := f.rdb.LRange(f.Context(), name, 0, -1).Val()
	all := make([]T, len(lines))
	for i, line := range lines {
		if _, err := fmt.Sscan(line, fields(&all[i])...); err != nil {
			f.Fatalf("%s has %q: %v", name, line, err)
		}
	}
	return all
}

// check reads what was written down.
func (f *fair) check() {
	loads := list(f, begunList, (*begun).fields)
	ended, stored := list(f, endedList, (*stamped).fields), list(f, storedList, (*stamped).fields)
	f.Logf("%d loads for the first edition and %d expiries; %d loaders were killed", len(loads), f.Last-1, len(f.killed))
	if want := int(f.Last) + len(f.Hang); len(loads) != want || len(ended) != int(f.Last) || len(f.killed) != len(f.Hang) {
		f.Errorf("%d loads began, %d ended, %d loaders were killed; want %d, %d, %d", len(loads), len(ended), len(f.killed), want, f.Last, len(f.Hang))
	}
	if len(stored) != len(ended) {
		f.Fatalf("%d loads ended, %d editions were stored", len(ended), len(stored))
	}
	for i, s := range stored {
		if s.number != int64(i+1) {
			f.Fatalf("the edition stored as number %d is %d", i+1, s.number)
		}
	}
	f.checkLoads(loads, ended)
	f.checkReports(loads, ended, stored)
}

// checkLoads has no load begin before it is due: when the edition before it has ended,
// or the lease of the killed loader before it; and a killed loader succeeded in time.
func (f *fair) checkLoads(loads []begun, ended []stamped) {
	ends := make(map[int64]int64) // by the number of the load
	for _, e := range ended {
		ends[e.number] = e.at
	}
	longest, kills := time.Duration(0), 0
	for i, l := range loads[:len(loads)-1] {
		number, next := int64(i+1), loads[i+1]
		end, done := ends[number]
		switch {
		case done:
			// The edition lives for Expiry from when it was stored, after end. Its end is a
			// whole millisecond, cut off; who reads it takes off another one, and the time
			// that reading took, of which microseconds are cut off.
			due := end + (f.Expiry - 2*time.Millisecond).Microseconds() - (next.trip + 1)
			if next.at <= due {
				f.Errorf("load %d began %v before the edition before it ended", number+1, micros(due-next.at))
			}
		case !slices.Contains(f.Hang, number):
			f.Errorf("load %d has not ended", number)
		case kills < len(f.killed):
			if next.at <= l.deadline {
				f.Errorf("load %d began %v before the end of the lease of load %d", number+1, micros(l.deadline-next.at), number)
			}
			after := micros(next.at - f.killed[kills].UnixMicro())
			longest = max(longest, after)
			if after > f.TTL+late(f.T) {
				f.Errorf("load %d began %v after its predecessor was killed; want at most %v", number+1, after, f.TTL+late(f.T))
			}
			kills++
		}
	}
	if kills > 0 {
		f.Logf("a killed loader was succeeded after %v at the latest; the TTL of its lock was %v", longest, f.TTL)
	}
}

// checkReports has nobody get an edition that had ended before he asked, or is older than
// one that somebody had got before; and nobody wait for longer than a load and, if its
// process was killed, a TTL.
func (f *fair) checkReports(loads []begun, ended, stored []stamped) {
	load := time.Duration(0) // the longest
	for _, e := range ended {
		load = max(load, micros(e.at-loads[e.number-1].at))
	}
	editions := make(map[int64]*editionReport)
	var gets, longest, of int64 // and the edition that took longest
	for _, text := range f.rdb.LRange(f.Context(), reportList, 0, -1).Val() {
		var reports []editionReport
		if err := json.Unmarshal([]byte(text), &reports); err != nil {
			f.Fatal(err)
		}
		for _, r := range reports {
			gets += r.Gets
			if r.Longest > longest {
				longest, of = r.Longest, r.Edition
			}
			all := editions[r.Edition]
			if all == nil {
				editions[r.Edition] = &r
				continue
			}
			all.Gets += r.Gets
			all.Latest, all.Earliest = max(all.Latest, r.Latest), min(all.Earliest, r.Earliest)
		}
	}
	fewest := gets
	for number := int64(1); number <= f.Last; number++ {
		r := editions[number]
		if r == nil {
			f.Errorf("nobody got edition %d", number)
			continue
		}
		fewest = min(fewest, r.Gets)
		if over := r.Latest - stored[number-1].at - f.Expiry.Microseconds(); over > 0 && number < f.Last {
			f.Errorf("edition %d was given to somebody who asked %v after its end", number, micros(over))
		}
		if next := editions[number+1]; next != nil && r.Latest > next.Earliest {
			f.Errorf("edition %d was given to somebody who asked %v after another one had got edition %d", number, micros(r.Latest-next.Earliest), number+1)
		}
	}
	f.Logf("%d gets, at least %d of each edition; the longest, of edition %d, took %v, the longest load %v", gets, fewest, of, micros(longest), load)
	bound := load + late(f.T)
	if len(f.killed) > 0 {
		bound += f.TTL
	}
	if micros(longest) > bound {
		f.Errorf("somebody waited for %v; want at most %v", micros(longest), bound)
	}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// crowd is a process with many callers who all want the current edition, which is loaded
// from a source that takes its time. What happens is written down in Redis.
type crowd struct {
	*rediscache.Store
	crowdPlan
	source  *redis.Client // the loader's own
	cached  *cache.Func[string, edition]
	trip    atomic.Int64 // of the last Claim, in microseconds
	loaded  atomic.Int64 // the last edition that this process has loaded
	over    atomic.Bool  // a caller has the last edition
	mu      sync.Mutex
	reports map[int64]*editionReport // by edition, since the last time they were written down
}

type crowdPlan struct {
	Addr    string // of Redis
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
	c.cached = cache.Must(locks, core.Policy{Key: "edition:{.}", Wait: roomtest.Patience, TTL: plan.TTL}, c, c.load,
		cache.Policy{Expiry: plan.Expiry})
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
