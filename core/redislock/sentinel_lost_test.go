package redislock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestSentinelFailoverThatLosesWritesTellsTheOldHolder has a master die with
// locks that no replica knows of: 2 times, or 100 if full counts are asked for, or as
// often as LOCKAROUND_COUNTS says. The locks may be granted twice. Then the old holder is told, by its
// deadline at the latest, and its token is the smaller one.
func TestSentinelFailoverThatLosesWritesTellsTheOldHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for failovers")
	}
	t.Parallel()
	rounds := counts.Of(t, "failovers", 2, 100)
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
	s := testservers.RedisSentinel(t, 1)
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
