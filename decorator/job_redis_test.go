package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/redisserver"
)

// The times leave more than half a second, and runs a whole one, for a machine that is
// busy with other tests.
var (
	realPolicy   = core.Policy{Key: "job:report", TTL: time.Second}
	realSchedule = decorator.Schedule{Every: 8 * time.Second, Skew: 100 * time.Millisecond, MaxRun: 1200 * time.Millisecond, CatchUp: true}
)

// At one tick the replica that runs the job first is killed.
const (
	realTicks  = 3
	killedTick = 1
)

func TestJobIsRunOnceATickByProcessesOfWhichSomeAreKilled(t *testing.T) {
	t.Parallel()
	addr := redisserver.Start(t).Addr
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: addr})
	defer func() { _ = rdb.Close() }()
	first := time.Now().Add(2 * time.Second)
	var replicas []*child
	for late := time.Duration(0); late <= realSchedule.Skew; late += realSchedule.Skew / 2 {
		replicas = append(replicas, startChild(t, "TestReplicaProcess", replicaPlan{addr, first.Add(late)}))
	}
	var outs sync.WaitGroup
	for _, c := range replicas {
		c.begin(t)
		outs.Go(func() {
			for line := c.read(); line != ""; line = c.read() {
				switch line {
				case "ready":
				case hangs:
					c.kill()
				default:
					t.Errorf("a replica said %q", line)
				}
			}
		})
	}
	outs.Wait()

	last := int64(0)
	for n := range realTicks {
		alive, want := 3, "ran"
		if n >= killedTick {
			alive = 2
		}
		if n == killedTick {
			want = "caught_up"
		}
		tokens := rdb.LRange(t.Context(), fmt.Sprint("completed:", n), 0, -1).Val()
		if len(tokens) != 1 {
			t.Errorf("tick %d was completed %d times", n, len(tokens))
			continue
		}
		if token, err := strconv.ParseInt(tokens[0], 10, 64); err != nil || token <= last {
			t.Errorf("tick %d: token %s after %d", n, tokens[0], last)
		} else {
			last = token
		}
		outcomes := rdb.LRange(t.Context(), fmt.Sprint("outcomes:", n), 0, -1).Val()
		slices.Sort(outcomes)
		if expect := append([]string{want}, slices.Repeat([]string{"skipped"}, alive-1)...); !slices.Equal(outcomes, expect) {
			t.Errorf("tick %d: the calls of replicas that were not killed ended as %v, want %v", n, outcomes, expect)
		}
	}
}

// replicaPlan is what a replica is told.
type replicaPlan struct {
	Addr  string
	First time.Time // its first tick, late by its clock
}

// TestReplicaProcess is what a replica's process runs.
func TestReplicaProcess(t *testing.T) { beAChild(t, runReplica) }

func runReplica(plan replicaPlan) (err error) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: plan.Addr})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("test"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	job := decorator.Job(locks, realPolicy, func(ctx context.Context) error { return runOnRedis(ctx, rdb) }, realSchedule)
	for n := range realTicks {
		<-time.After(time.Until(plan.First.Add(time.Duration(n) * realSchedule.Every)))
		if err := job.Run(context.WithValue(context.Background(), tickNumber{}, n)); err != nil {
			return fmt.Errorf("tick %d: %w", n, err)
		}
		if err := rdb.RPush(context.Background(), fmt.Sprint("outcomes:", n), job.Status().Outcome.String()).Err(); err != nil {
			return err
		}
	}
	return nil
}

// runOnRedis is the job of a replica. It hangs where it is to be killed.
func runOnRedis(ctx context.Context, rdb *redis.Client) error {
	n := ctx.Value(tickNumber{}).(int)
	began, err := rdb.Incr(ctx, fmt.Sprint("began:", n)).Result()
	if err != nil {
		return err
	}
	if began == 1 && n == killedTick {
		fmt.Println(hangs)
		select {}
	}
	lease, _ := core.LeaseFrom(ctx)
	return rdb.RPush(ctx, fmt.Sprint("completed:", n), lease.Token()).Err()
}
