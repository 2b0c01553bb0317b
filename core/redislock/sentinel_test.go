package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
)

// follower is an engine whose client asks the sentinels who is the master.
func follower(t testing.TB, s *redistest.Sentinel) *engine {
	t.Helper()
	return newEngine(t, redislock.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(),
	}), core.WithStoreTimeout(outage))
}

// TestSentinelConformance runs the suite on a master that Sentinels watch. What restarts
// or wipes servers is told by the tests of failovers.
func TestSentinelConformance(t *testing.T) {
	s := redistest.StartSentinel(t, 1)
	master := s.Master().Addr()
	open := func(t *testing.T, to string) *redis.Client {
		c := redislock.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: s.Addrs(),
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == master {
					addr = to
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		})
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		return c
	}
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		proxy := redistest.NewProxy(t, master)
		by := open(t, proxy.Addr())
		if err := by.Ping(t.Context()).Err(); err != nil { // it has found the master
			t.Fatal(err)
		}
		return proxied(t, proxy, by, open(t, master))
	})
}

func TestSentinelFailoverThatLosesNothingKeepsLeasesAndQueues(t *testing.T) {
	t.Parallel()
	for name, failOver := range map[string]func(*redistest.Sentinel){
		"master killed": func(s *redistest.Sentinel) {
			old := s.Master()
			old.Kill()
			s.Promoted(old)
		},
		"asked for": func(s *redistest.Sentinel) { s.Failover() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinel(t, 1)
			a, b := follower(t, s), follower(t, s)
			handOver(t, a, b, "before")
			lease := a.take(t, "k", lasting)
			next := b.queue(t, "k", lasting)
			s.Replicated(s.Master())

			failOver(s)
			if err := answered(t, lease); err != nil {
				t.Errorf("the holder after the failover: %v", err)
			}
			select {
			case l := <-next:
				t.Errorf("the waiter was granted token %d while the holder has %d", l.Token(), lease.Token())
			default:
			}
			giveBack(t, lease)
			second := <-next
			if second == nil {
				return
			}
			if second.Token() <= lease.Token() {
				t.Errorf("token %d after %d", second.Token(), lease.Token())
			}
			giveBack(t, second)
			handOver(t, a, b, "after")
		})
	}
}

// TestSentinelFailoverThatLosesWritesTellsTheOldHolder has a master die with
// locks that no replica knows of: 2 times, or 100 if full counts are asked for, or
// LOCKAROUND_FAILOVERS. The locks may
// be granted twice. Then the old holder is told, by its deadline at the latest,
// and its token is the smaller one.
func TestSentinelFailoverThatLosesWritesTellsTheOldHolder(t *testing.T) {
	t.Parallel()
	rounds := counts.Of(t, "LOCKAROUND_FAILOVERS", 2, 100)
	var sum lostWrites
	for i := range rounds {
		t.Run(fmt.Sprint("failover ", i+1), func(t *testing.T) { sum.add(loseWrites(t)) })
	}
	t.Attr("figure-13", fmt.Sprintf("%d failovers, %d locks that no replica knew of, %d granted twice, %d of their old holders told, at the latest %v before the deadline; "+
		"longest overlap %v; %d stale writes accepted; the next grant at the latest %v after the kill",
		rounds, sum.locks, sum.doubles, sum.told, sum.spare.Round(time.Millisecond), sum.overlap.Round(time.Millisecond), sum.stale, sum.outage.Round(time.Millisecond)))
	t.Attr("figure-14", fmt.Sprintf("%d failovers that lost writes, %d keys: %d token regressions", rounds, sum.locks, sum.regressions))
}

// lostWrites is what happened to the locks of one failover, or of several.
type lostWrites struct {
	locks, doubles, told, stale, regressions int

	spare   time.Duration // from being told to the deadline, the smallest; negative is too late
	overlap time.Duration // from the second grant to the first holder being told, the longest
	outage  time.Duration // from the kill to the next grant, the longest
}

func (s *lostWrites) add(o lostWrites) {
	if s.locks == 0 || o.spare < s.spare {
		s.spare = o.spare
	}
	s.locks += o.locks
	s.doubles += o.doubles
	s.told += o.told
	s.stale += o.stale
	s.regressions += o.regressions
	s.overlap = max(s.overlap, o.overlap)
	s.outage = max(s.outage, o.outage)
}

// fence is what the locks protect: it refuses a token below the largest seen.
type fence struct {
	mu      sync.Mutex
	largest int64
	stale   int // writes of the first holder accepted after one of the second
	second  bool
}

func (f *fence) write(token int64, second bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if token < f.largest {
		return
	}
	f.largest = token
	if f.second && !second {
		f.stale++
	}
	f.second = f.second || second
}

func loseWrites(t *testing.T) lostWrites {
	const (
		waiters   = 3                // keys that somebody waits for when the master dies
		latecomer = 2                // keys that somebody asks for afterwards
		ttl       = 30 * time.Second // the first renewal comes after most failovers
		slack     = 50 * time.Millisecond
	)
	machine := hiccups.Start(t)
	s := redistest.StartSentinel(t, 1)
	a, b := follower(t, s), follower(t, s)
	handOver(t, a, b, "warm") // both have subscribed, the server knows the scripts
	master := s.Master()
	s.Replicated(master)
	s.CutReplication(master)

	type lock struct {
		fence   fence
		first   *core.Lease
		next    <-chan *core.Lease
		told    chan time.Time
		second  *core.Lease
		granted time.Time
	}
	var locks [waiters + latecomer]*lock
	for i := range locks {
		l := &lock{first: a.take(t, fmt.Sprint("k", i), ttl), told: make(chan time.Time, 1)}
		if i < waiters {
			l.next = b.queue(t, l.first.Key(), lasting)
		}
		go func() {
			// The holder works for as long as it believes in its lease.
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-l.first.Done():
					l.told <- time.Now()
					return
				case <-tick.C:
					l.fence.write(l.first.Token(), false)
				}
			}
		}()
		locks[i] = l
	}
	killed := time.Now()
	master.Kill()
	s.Promoted(master)
	for i, l := range locks {
		if l.next == nil {
			got := make(chan *core.Lease, 1)
			go func() { got <- b.take(t, fmt.Sprint("k", i), lasting) }()
			l.next = got
		}
	}

	var granted sync.WaitGroup
	for _, l := range locks {
		granted.Go(func() {
			if l.second = <-l.next; l.second != nil {
				l.granted = time.Now()
				l.fence.write(l.second.Token(), true)
			}
		})
	}
	granted.Wait()

	var sum lostWrites
	for _, l := range locks {
		second, granted := l.second, l.granted
		if second == nil {
			continue
		}
		told := <-l.told
		late := told.Sub(l.first.Deadline())
		one := lostWrites{locks: 1, spare: -late, outage: granted.Sub(killed)}
		if !errors.Is(l.first.Err(), core.ErrLost) {
			t.Errorf("%s: its old holder was told %v", l.first.Key(), l.first.Err())
		} else if late <= machine.Allow(slack) {
			one.told = 1
		} else {
			t.Errorf("%s: its old holder was told %v after its deadline", l.first.Key(), late)
		}
		if granted.Before(told) {
			one.doubles, one.overlap = 1, told.Sub(granted)
		} else {
			one.told = 0 // told before anybody else had the lock
		}
		if second.Token() <= l.first.Token() {
			one.regressions = 1
			t.Errorf("%s: token %d was granted after %d", l.first.Key(), second.Token(), l.first.Token())
		}
		if one.stale = l.fence.stale; one.stale > 0 {
			t.Errorf("%s: %d stale writes accepted", l.first.Key(), one.stale)
		}
		_ = l.first.Release(t.Context()) // which says once more that it was lost
		giveBack(t, second)
		sum.add(one)
	}
	return sum
}

// whenTold says when the lease ends for its holder.
func whenTold(l *core.Lease) <-chan time.Time {
	told := make(chan time.Time, 1)
	go func() {
		<-l.Done()
		told <- time.Now()
	}()
	return told
}

func TestSentinelPromotionBesideAFrozenMasterEndsItsLeases(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	a, b := follower(t, s), follower(t, s)
	handOver(t, a, b, "before")
	master := s.Master()
	s.CutReplication(master)
	lease := a.take(t, "k", 8*time.Second)
	told := whenTold(lease)
	machine := hiccups.Start(t)
	master.Stop()
	s.Promoted(master)
	second := b.take(t, "k", lasting)
	if late := (<-told).Sub(lease.Deadline()); late > machine.Allow(50*time.Millisecond) || !errors.Is(lease.Err(), core.ErrLost) {
		t.Errorf("the old holder was told %v, %v after its deadline", lease.Err(), late)
	}
	if second.Token() <= lease.Token() {
		t.Errorf("token %d after %d", second.Token(), lease.Token())
	}
	_ = lease.Release(t.Context()) // it was lost
	giveBack(t, second)

	// It wakes up as a master with data of its own and is made a replica.
	master.Cont()
	s.Readmit(master)
	s.Demoted(master)
	handOver(t, a, b, "after")
}

func TestSentinelMasterWithoutReplicasEndsLeasesIfItMustHaveSome(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	a := follower(t, s)
	lease := a.take(t, "k", 2*time.Second)
	machine := hiccups.Start(t)
	told := whenTold(lease)
	s.CutReplication(s.Master())
	if late := (<-told).Sub(lease.Deadline()); late > machine.Allow(50*time.Millisecond) || !errors.Is(lease.Err(), core.ErrLost) {
		t.Errorf("the holder was told %v, %v after its deadline", lease.Err(), late)
	}
	_ = lease.Release(t.Context()) // it was lost
	_, err := a.Acquire(t.Context(), core.Policy{Key: "other"})
	if !errors.Is(err, core.ErrUnavailable) || isPermanent(err) {
		t.Errorf("a key of a master that may not write: %v; want a passing ErrUnavailable", err)
	}
	s.Readmit(s.Master())
	giveBack(t, a.take(t, "k", lasting))
}

func TestSentinelReplicaRefusesLocksUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1)
	old := s.Master()
	var replica string
	for _, n := range s.Nodes() {
		if n != old {
			replica = n.Addr()
		}
	}
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: replica}))
	if _, err := e.Acquire(t.Context(), core.Policy{Key: "k"}); !errors.Is(err, core.ErrUnavailable) || isPermanent(err) {
		t.Errorf("a lock at a replica: %v; want a passing ErrUnavailable", err)
	}
	s.Failover()
	giveBack(t, e.take(t, "k", lasting))
}

// brains are two masters, each of which a sentinel takes for the only one, as after a
// failover that one of the sentinels has not heard of.
type brains struct {
	old, right    *redistest.Server
	behind, knows string // the sentinels' addresses
	options       *redis.FailoverOptions

	mu     sync.Mutex
	healed bool        // clients reach the sentinel that knows
	learns func() bool // the other one knows now, too; nil is no
	conns  []net.Conn  // to the one that is behind
}

func newBrains(t *testing.T) *brains {
	b := &brains{old: redistest.Start(t), right: redistest.Start(t)}
	b.behind, b.knows = redistest.Watch(t, b.old, 1).Addr(), redistest.Watch(t, b.right, 2).Addr()
	b.options = &redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: []string{b.behind, b.knows}, Dialer: b.dial,
	}
	return b
}

func (b *brains) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if addr == b.knows && !b.healed {
		return nil, errors.New("the network is cut")
	}
	behind := addr == b.behind
	if behind && b.learns != nil && b.learns() {
		addr, behind = b.knows, false
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && behind {
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

// heal lets clients reach the sentinel that knows.
func (b *brains) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healed = true
}

// learn has the sentinel that is behind learn of the other master.
func (b *brains) learn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learns = func() bool { return true }
	for _, c := range b.conns {
		_ = c.Close()
	}
}

// holds fails the test unless the lock is taken at the master.
func (b *brains) holds(t *testing.T, master *redistest.Server, key string) {
	t.Helper()
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: master.Addr()}))
	if _, err := e.Acquire(t.Context(), core.Policy{Key: key}); !errors.Is(err, core.ErrBusy) {
		t.Errorf("%s at %s: %v, want it taken", key, master.Addr(), err)
	}
}

func TestMasterThatWasSupersededIsLeftAsSoonAsOneSentinelSaysSo(t *testing.T) {
	t.Parallel()
	for name, news := range map[string]func(*brains){
		"another one":               (*brains).heal,
		"the one that had named it": (*brains).learn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBrains(t)
			a := newEngine(t, redislock.NewFailoverClient(b.options), core.WithStoreTimeout(outage))
			lease := a.take(t, "k", 2*time.Second)
			b.holds(t, b.old, "k")

			told := whenTold(lease)
			news(b)
			select {
			case <-told:
			case <-bounded(t).Done():
				t.Fatal("the lease was renewed at the old master")
			}
			if !errors.Is(lease.Err(), core.ErrLost) {
				t.Errorf("the old holder was told %v", lease.Err())
			}
			_ = lease.Release(t.Context()) // it was lost
			again := a.take(t, "k", lasting)
			b.holds(t, b.right, "k")
			giveBack(t, again)
		})
	}
}

func TestFailoverClientBeginsAtTheRightMaster(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, b *brains, key string) {
		e := newEngine(t, redislock.NewFailoverClient(b.options), core.WithStoreTimeout(outage))
		lease := e.take(t, key, lasting)
		b.holds(t, b.right, key)
		giveBack(t, lease)
	}
	t.Run("two masters are named", func(t *testing.T) {
		b := newBrains(t)
		b.heal()
		for i := range 4 { // the sentinels are asked in any order
			begin(t, b, fmt.Sprint("k", i))
		}
	})
	t.Run("the one that was named first is named by nobody when it is dialled", func(t *testing.T) {
		b := newBrains(t)
		b.heal()
		n := 0
		b.learns = func() bool { n++; return n > 1 } // go-redis is the first to ask
		begin(t, b, "k")
	})
}

func isPermanent(err error) bool {
	var p *driver.PermanentError
	return errors.As(err, &p)
}
