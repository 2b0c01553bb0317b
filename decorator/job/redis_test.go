package job_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/job"
)

// realTimes are the times of the job. They bear replicas and a server that are late by up to
// half a second for each scale: less than a renewal leaves of the TTL, and than the schedule
// leaves of half of Every.
func realTimes(scale time.Duration) (p core.Policy, s job.Schedule, bears time.Duration) {
	p = core.Policy{Key: "job:report", TTL: scale * time.Second}
	s = job.Schedule{Every: scale * 8 * time.Second, Skew: scale * 100 * time.Millisecond, MaxRun: scale * 1200 * time.Millisecond, CatchUp: true}
	return p, s, scale * 500 * time.Millisecond
}

// At one tick the replica that runs the job first is killed.
const (
	realTicks  = 3
	killedTick = 1
)

// A job bears what its schedule says. On a machine that was later than that it is given
// more time, and only what holds however late a replica is counts for the last try.
func TestJobIsRunOnceATickByProcessesOfWhichSomeAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for seconds")
	}
	t.Parallel()
	for scale := time.Duration(1); ; scale *= 2 {
		_, _, bears := realTimes(scale)
		late := runJobInProcesses(t, scale, scale == 4)
		if late <= bears || scale == 4 {
			return
		}
		t.Logf("somebody was late by %v; the times bear %v", late, bears)
	}
}

// runJobInProcesses returns by how much somebody was late, and fails the test if the ticks
// were not run as the schedule says, unless somebody was later than it bears.
func runJobInProcesses(t *testing.T, scale time.Duration, last bool) (late time.Duration) {
	_, schedule, bears := realTimes(scale)
	addr := testservers.Redis(t).Addr()
	rdb := roomtest.Client(addr)
	defer func() { _ = rdb.Close() }()
	var replicas []*roomtest.Child
	for range 3 {
		replicas = append(replicas, roomtest.Start(t, "TestReplicaProcess", replicaPlan{addr, scale}))
	}
	for _, c := range replicas {
		if line := c.Read(); line != "ready" {
			t.Fatalf("a replica said %q", line)
		}
	}
	first := time.Now().Add(time.Second)
	if err := rdb.Set(t.Context(), firstTick, first.UnixNano(), 0).Err(); err != nil {
		t.Fatal(err)
	}
	var outs sync.WaitGroup
	for i, c := range replicas {
		if err := rdb.RPush(t.Context(), clocksLate, int64(schedule.Skew)*int64(i)/2).Err(); err != nil {
			t.Fatal(err)
		}
		c.Begin(t)
		outs.Go(func() {
			for line := c.Read(); line != ""; line = c.Read() {
				switch line {
				case roomtest.Hangs:
					c.Kill()
				default:
					t.Errorf("a replica said %q", line)
				}
			}
		})
	}
	outs.Wait()

	for _, text := range rdb.LRange(t.Context(), lateList, 0, -1).Val() {
		by, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		late = max(late, by)
	}
	if late > bears && !last {
		return late
	}
	token := int64(0)
	for n := range realTicks {
		alive, want := 3, "ran"
		if n >= killedTick {
			alive = 2
		}
		if n == killedTick {
			want = "caught_up"
		}
		tokens := rdb.LRange(t.Context(), fmt.Sprint("completed:", n), 0, -1).Val()
		if len(tokens) == 0 || len(tokens) > 1 && late <= bears {
			t.Errorf("tick %d was completed %d times", n, len(tokens))
		}
		if late > bears {
			continue // a run that was stopped may come to its end after the next one
		}
		for _, text := range tokens {
			next, err := strconv.ParseInt(text, 10, 64)
			if err != nil || next <= token {
				t.Errorf("tick %d: token %s after %d", n, text, token)
			}
			token = next
		}
		outcomes := rdb.LRange(t.Context(), fmt.Sprint("outcomes:", n), 0, -1).Val()
		slices.Sort(outcomes)
		if expect := append([]string{want}, slices.Repeat([]string{"skipped"}, alive-1)...); !slices.Equal(outcomes, expect) {
			t.Errorf("tick %d: the calls of replicas that were not killed ended as %v, want %v", n, outcomes, expect)
		}
	}
	return late
}

// replicaPlan is what a replica is told.
type replicaPlan struct {
	Addr  string // of Redis
	Scale time.Duration
}

// Keys in Redis.
const (
	firstTick  = "first"  // when the first tick is
	clocksLate = "clocks" // by how much the clock of each replica is late
	lateList   = "late"   // by how much replicas and the server were late
)

// TestReplicaProcess is what a replica's process runs.
func TestReplicaProcess(t *testing.T) { roomtest.Be(t, runReplica) }

func runReplica(plan replicaPlan) (err error) {
	rdb := roomtest.Client(plan.Addr)
	defer func() { err = errors.Join(err, rdb.Close()) }()
	locks, err := roomtest.Locks(rdb)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	at, err := rdb.Get(ctx, firstTick).Int64()
	if err != nil {
		return err
	}
	clock, err := rdb.LPop(ctx, clocksLate).Int64()
	if err != nil {
		return err
	}
	first := time.Unix(0, at+clock)
	var late atomic.Int64
	var measuring sync.WaitGroup
	measuring.Go(func() { measureLateness(ctx, rdb, &late) })
	defer measuring.Wait()
	defer cancel()
	policy, schedule, _ := realTimes(plan.Scale)
	job := job.Must(locks, policy, func(ctx context.Context) error { return runOnRedis(ctx, rdb, &late) }, schedule)
	for n := range realTicks {
		due := first.Add(time.Duration(n) * schedule.Every)
		<-time.After(time.Until(due))
		late.Store(max(late.Load(), int64(time.Since(due))))
		if err := job.Run(context.WithValue(context.Background(), tickNumber{}, n)); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if err := tellLateness(ctx, rdb, &late); err != nil {
			return err
		}
		if err := rdb.RPush(context.Background(), fmt.Sprint("outcomes:", n), job.Status().Outcome.String()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// measureLateness asks the server every few milliseconds, and keeps the longest time by which
// that took longer, because this process or the server was stopped.
func measureLateness(ctx context.Context, rdb *redis.Client, late *atomic.Int64) {
	const nap = 10 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		<-time.After(nap)
		_ = rdb.Ping(ctx).Err() // what does not answer is late
		late.Store(max(late.Load(), int64(time.Since(began)-nap)))
	}
}

func tellLateness(ctx context.Context, rdb *redis.Client, late *atomic.Int64) error {
	return rdb.RPush(ctx, lateList, time.Duration(late.Load()).String()).Err()
}

// runOnRedis is the job of a replica. It hangs where it is to be killed.
func runOnRedis(ctx context.Context, rdb *redis.Client, late *atomic.Int64) error {
	n := ctx.Value(tickNumber{}).(int)
	began, err := rdb.Incr(ctx, fmt.Sprint("began:", n)).Result()
	if err != nil {
		return err
	}
	if began == 1 && n == killedTick {
		if err := tellLateness(ctx, rdb, late); err != nil {
			return err
		}
		fmt.Println(roomtest.Hangs)
		select {}
	}
	lease, _ := core.LeaseFrom(ctx)
	return rdb.RPush(ctx, fmt.Sprint("completed:", n), lease.Token()).Err()
}
