//go:build unix

package leader_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/leader"
)

// Keys in Redis, besides the locks.
const (
	leaderTerm   = "leader:term"   // the largest that has written
	leaderTerms  = "leader:terms"  // each at its first write, with its process: term:pid
	leaderStale  = "leader:stale"  // writes of a smaller term than the largest, which were refused
	leaderBeside = "leader:beside" // terms that began while another process was inside the function
	leaderHeard  = "leader:heard"  // of one who only observes
)

// leaderWrite is a write at the guarded resource. Terms have 19 digits there, as Lua's numbers
// cannot hold them.
var leaderWrite = redis.NewScript(`
local largest = redis.call('GET', KEYS[1]) or ''
if ARGV[1] < largest then
  redis.call('INCR', KEYS[3])
  return 0
end
if ARGV[1] > largest then
  redis.call('SET', KEYS[1], ARGV[1])
  redis.call('RPUSH', KEYS[2], ARGV[1] .. ':' .. ARGV[2])
end
return 1`)

const leaderTTL = 1500 * time.Millisecond

type candidatePlan struct {
	Addr    string // of Redis
	Inside  string // a file that the leader locks for as long as its process is there; empty for none
	Observe bool
}

// TestCandidateProcess is what a candidate's process runs.
func TestCandidateProcess(t *testing.T) { roomtest.Be(t, runCandidate) }

func runCandidate(plan candidatePlan) (err error) {
	rdb := roomtest.Client(plan.Addr)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	locks, err := roomtest.Locks(rdb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	pid := os.Getpid()
	l := leader.Must(locks, core.Policy{Key: "indexer", TTL: leaderTTL}, func(ctx context.Context) error {
		if plan.Inside != "" {
			inside, err := os.OpenFile(plan.Inside, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer func() { _ = inside.Close() }()
			if err := syscall.Flock(int(inside.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				return rdb.RPush(ctx, leaderBeside, pid).Err()
			}
		}
		lease, ok := core.LeaseFrom(ctx)
		if !ok {
			return context.Cause(ctx)
		}
		term := fmt.Sprintf("%019d", lease.Token())
		for ctx.Err() == nil {
			if err := leaderWrite.Run(ctx, rdb, []string{leaderTerm, leaderTerms, leaderStale}, term, pid).Err(); err != nil {
				return err
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		return ctx.Err()
	}, leader.Pause(time.Millisecond, time.Millisecond))
	if plan.Observe {
		news, err := l.Observe(context.Background())
		if err != nil {
			return err
		}
		for n := range news {
			if err := rdb.RPush(context.Background(), leaderHeard, fmt.Sprintf("%019d", n.Term)).Err(); err != nil {
				return err
			}
		}
		return nil
	}
	return l.Run(context.Background())
}

// election is candidates in processes of their own, on one Redis.
type election struct {
	*testing.T
	rdb        *redis.Client
	plan       candidatePlan
	candidates map[int]*roomtest.Child
}

func newElection(t *testing.T, candidates int, inside string) *election {
	addr := testservers.Redis(t).Addr()
	e := &election{T: t, rdb: roomtest.Client(addr), plan: candidatePlan{Addr: addr, Inside: inside}, candidates: map[int]*roomtest.Child{}}
	t.Cleanup(func() { _ = e.rdb.Close() })
	for range candidates {
		e.start()
	}
	return e
}

func (e *election) start() {
	e.Helper()
	c := roomtest.Start(e.T, "TestCandidateProcess", e.plan)
	if line := c.Read(); line != "ready" {
		e.Fatalf("a candidate said %q", line)
	}
	c.Begin(e.T)
	e.candidates[c.Process().Pid] = c
}

// leader waits for the first term after that one, and returns it with its process.
func (e *election) leader(after string) (term string, pid int, waited time.Duration) {
	e.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; <-time.After(2 * time.Millisecond) {
		last, err := e.rdb.LIndex(e.Context(), leaderTerms, -1).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			e.Fatal(err)
		}
		term, process, _ := strings.Cut(last, ":")
		if term > after {
			if pid, err = strconv.Atoi(process); err != nil {
				e.Fatal(err)
			}
			return term, pid, time.Since(began)
		}
	}
	e.Fatal("nobody has led for a minute")
	return "", 0, 0
}

func (e *election) count(key string) int {
	e.Helper()
	n, err := e.rdb.LLen(e.Context(), key).Result()
	if err != nil {
		e.Fatal(err)
	}
	return int(n)
}

// logTimes logs the median and the longest of some times.
func logTimes(t *testing.T, what string, all []time.Duration) {
	slices.Sort(all)
	t.Logf("%d %s: median %v, worst %v", len(all), what, all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

// TestKilledLeaderIsSucceededByOneOverProcesses kills -9 the leader of five, again and
// again. What this machine was late by while it waited comes on top of the bound.
func TestKilledLeaderIsSucceededByOneOverProcesses(t *testing.T) {
	t.Parallel()
	inside := filepath.Join(t.TempDir(), "inside")
	if err := os.WriteFile(inside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := newElection(t, 5, inside)
	var took []time.Duration
	term, pid, _ := e.leader("")
	for range counts.Of(t, "leaders", 5, 50) {
		stalls := watchStalls(t)
		e.candidates[pid].Kill()
		_ = e.candidates[pid].Wait()
		delete(e.candidates, pid)
		var waited time.Duration
		term, pid, waited = e.leader(term)
		took = append(took, waited)
		if bound := leaderTTL + time.Second + stalls(); waited > bound {
			t.Errorf("the next one led after %v; at most %v is promised", waited, bound)
		}
		e.start()
	}
	logTimes(t, "leaders were killed, and succeeded", took)
	if n := e.count(leaderBeside); n > 0 {
		t.Errorf("%d terms began beside another one", n)
	}
	if n, _ := e.rdb.Get(t.Context(), leaderStale).Int(); n > 0 {
		t.Errorf("%d writes came after those of a later term", n)
	}
}

// TestStoppedLeaderIsSucceededAndItsWritesRefusedOverProcesses stops leaders for longer than
// the TTL. They go on when the next one leads.
func TestStoppedLeaderIsSucceededAndItsWritesRefusedOverProcesses(t *testing.T) {
	t.Parallel()
	e := newElection(t, 5, "")
	observer := e.plan
	observer.Observe = true
	heard := roomtest.Start(t, "TestCandidateProcess", observer)
	heard.Begin(t)
	var took []time.Duration
	allStalls := watchStalls(t)
	term, pid, _ := e.leader("")
	for range counts.Of(t, "leaders", 3, 50) {
		stalls := watchStalls(t)
		stopped := e.candidates[pid].Process()
		if err := stopped.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var waited time.Duration
		old := term
		term, pid, waited = e.leader(term)
		took = append(took, waited)
		if bound := leaderTTL + time.Second + stalls(); waited > bound {
			t.Errorf("the next one led after %v; at most %v is promised", waited, bound)
		}
		for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
			last, err := e.rdb.LIndex(t.Context(), leaderHeard, -1).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			if last == term {
				break
			}
			if late := time.Since(began); late > time.Second+stalls() {
				t.Errorf("%v after term %s began the observer still has %s (before: %s)", late, term, last, old)
				break
			}
		}
		if err := stopped.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	logTimes(t, "leaders were stopped, and succeeded", took)
	stale, _ := e.rdb.Get(t.Context(), leaderStale).Int()
	t.Logf("%d late writes of theirs were refused", stale)
	// One write each, and one for each pause until a machine that stalls has cancelled the context.
	if stale > len(took)+int(allStalls()/(5*time.Millisecond)) {
		t.Errorf("%d late writes of %d leaders that were stopped: they did not look at their context", stale, len(took))
	}
}

// watchStalls measures by how much this machine is late while a test waits.
func watchStalls(t *testing.T) func() time.Duration {
	t.Helper()
	const nap = 5 * time.Millisecond
	var late time.Duration
	ask, stop := make(chan chan time.Duration), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			began := time.Now()
			select {
			case <-time.After(nap):
				late += max(time.Since(began)-2*nap, 0)
			case a := <-ask:
				a <- late
			case <-stop:
				return
			}
		}
	}()
	return func() time.Duration {
		a := make(chan time.Duration)
		ask <- a
		return <-a
	}
}
