package asynqlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/examples/extra/adapters/asynqlock"
)

type payment struct {
	Order string `json:"order"`
}

// queue is asynq's, with the locks of its workers, in one Redis.
type queue struct {
	t      *testing.T
	addr   string
	client *asynq.Client
	looks  *asynq.Inspector
	told   chan error // what workers are told of tasks that failed
}

func open(t *testing.T) *queue {
	t.Helper()
	q := &queue{t: t, addr: testservers.Redis(t).Addr(), told: make(chan error, 1000)}
	at := asynq.RedisClientOpt{Addr: q.addr}
	q.client, q.looks = asynq.NewClient(at), asynq.NewInspector(at)
	t.Cleanup(func() {
		if err := errors.Join(q.client.Close(), q.looks.Close()); err != nil {
			t.Error(err)
		}
	})
	return q
}

// locks is an engine of one process.
func (q *queue) locks() *core.Engine {
	q.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: q.addr})
	locks, err := core.New(redislock.New(client), core.WithNamespace("test"))
	if err != nil {
		q.t.Fatal(err)
	}
	q.t.Cleanup(func() {
		if err := errors.Join(locks.Close(), client.Close()); err != nil {
			q.t.Error(err)
		}
	})
	return locks
}

// work starts a worker.
func (q *queue) work(p core.Policy, pay func(context.Context, *asynq.Task, payment) error) {
	q.t.Helper()
	worker := asynq.NewServer(asynq.RedisClientOpt{Addr: q.addr}, asynq.Config{
		Concurrency: 8, IsFailure: asynqlock.IsFailure, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(n int, err error, task *asynq.Task) time.Duration {
			return min(asynqlock.RetryDelay(n, err, task), time.Second) // asynq's own is half a minute
		},
		DelayedTaskCheckInterval: 50 * time.Millisecond, TaskCheckInterval: 50 * time.Millisecond,
		ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { q.told <- err }),
	})
	mux := asynq.NewServeMux()
	mux.Handle("order:pay", asynqlock.Lock(q.locks(), p, pay))
	if err := worker.Start(mux); err != nil {
		q.t.Fatal(err)
	}
	q.t.Cleanup(worker.Shutdown)
}

// enqueue returns what to look the task up by.
func (q *queue) enqueue(payload string, o ...asynq.Option) string {
	q.t.Helper()
	info, err := q.client.Enqueue(asynq.NewTask("order:pay", []byte(payload)), append(o, asynq.Retention(time.Hour))...)
	if err != nil {
		q.t.Fatal(err)
	}
	return info.ID
}

// await returns a task when it has come to a state.
func (q *queue) await(id string, state asynq.TaskState) *asynq.TaskInfo {
	q.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(5 * time.Millisecond) {
		info, err := q.looks.GetTaskInfo("default", id)
		if err != nil {
			q.t.Fatal(err)
		}
		if info.State == state {
			return info
		}
		if time.Now().After(end) {
			q.t.Fatalf("the task is %v, want %v: %s", info.State, state, info.LastErr)
		}
	}
}

func TestTasksOfAnOrderRunOneAtATime(t *testing.T) {
	q := open(t)
	var mu sync.Mutex
	running, most := map[string]int{}, 0
	var meet sync.WaitGroup // of the first tasks of both orders, which run at a time
	meet.Add(2)
	first := map[string]*sync.Once{"a": {}, "b": {}}
	for range 2 {
		q.work(core.Policy{Key: "order:{Order}", Wait: time.Minute}, func(ctx context.Context, _ *asynq.Task, in payment) error {
			lease, ok := core.LeaseFrom(ctx)
			if !ok || lease.Key() != "order:"+in.Order {
				t.Errorf("the task of order %s runs under %q", in.Order, lease.Key())
			}
			mu.Lock()
			running[in.Order]++
			most = max(most, running[in.Order])
			mu.Unlock()
			first[in.Order].Do(func() {
				meet.Done()
				meet.Wait()
			})
			<-time.After(time.Millisecond)
			mu.Lock()
			running[in.Order]--
			mu.Unlock()
			return nil
		})
	}
	var ids []string
	for range 10 {
		for _, order := range []string{"a", "b"} {
			ids = append(ids, q.enqueue(`{"order":"`+order+`"}`))
		}
	}
	for _, id := range ids {
		if info := q.await(id, asynq.TaskStateCompleted); info.Retried > 0 {
			t.Errorf("a task was retried %d times: %s", info.Retried, info.LastErr)
		}
	}
	if most != 1 {
		t.Errorf("up to %d tasks of an order at a time", most)
	}
}

func TestATaskWithoutItsLockUsesUpNoRetry(t *testing.T) {
	q := open(t)
	taken, err := q.locks().Acquire(t.Context(), core.Policy{Key: "order:a"})
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Bool
	q.work(core.Policy{Key: "order:{Order}"}, func(context.Context, *asynq.Task, payment) error {
		ran.Store(true)
		return nil
	})
	id := q.enqueue(`{"order":"a"}`, asynq.MaxRetry(1))
	for range 2 { // more often than it may fail
		if err := <-q.told; !errors.Is(err, core.ErrBusy) || ran.Load() {
			t.Fatalf("the task ran: %v, or failed by %v; want %v", ran.Load(), err, core.ErrBusy)
		}
	}
	if err := taken.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info := q.await(id, asynq.TaskStateCompleted); info.Retried != 0 {
		t.Errorf("the task was retried %d times", info.Retried)
	}
}

// TestATaskThatGoesOnIsNotRunBesideItself has a handler that does not look at its context.
func TestATaskThatGoesOnIsNotRunBesideItself(t *testing.T) {
	q := open(t)
	leave := make(chan struct{})
	var running, most, runs atomic.Int32
	q.work(core.Policy{Key: "order:{Order}"}, func(context.Context, *asynq.Task, payment) error {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		if runs.Add(1) == 1 {
			<-leave
		}
		return nil
	})
	id := q.enqueue(`{"order":"a"}`, asynq.Timeout(time.Second))
	if err := <-q.told; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("asynq says %v, want that the task's time is over", err)
	}
	if err := <-q.told; !errors.Is(err, core.ErrBusy) {
		t.Fatalf("the task that asynq runs again failed by %v, want %v", err, core.ErrBusy)
	}
	close(leave)
	q.await(id, asynq.TaskStateCompleted)
	if runs.Load() != 2 || most.Load() != 1 {
		t.Errorf("%d runs, up to %d at a time; want 2 and 1", runs.Load(), most.Load())
	}
}

func TestAPayloadThatMakesNoKeyIsArchived(t *testing.T) {
	q := open(t)
	q.work(core.Policy{Key: "order:{Order}"}, func(context.Context, *asynq.Task, payment) error {
		t.Error("the task ran without a lock")
		return nil
	})
	for payload, says := range map[string]string{`{}`: "missing or empty", `{"order":7}`: "cannot unmarshal number", `{`: "unexpected end"} {
		q.await(q.enqueue(payload), asynq.TaskStateArchived)
		if err := <-q.told; !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q and no retries", payload, err, says)
		}
	}
}

func TestALostLockFailsTheTask(t *testing.T) {
	q := open(t)
	direct := redis.NewClient(&redis.Options{Addr: q.addr})
	defer direct.Close()
	var runs atomic.Int32
	q.work(core.Policy{Key: "order:{Order}", TTL: 600 * time.Millisecond}, func(ctx context.Context, _ *asynq.Task, _ payment) error {
		if runs.Add(1) == 1 {
			keys, err := direct.Keys(ctx, "la2:{*}:*").Result()
			if err := errors.Join(err, direct.Del(ctx, keys...).Err()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
		}
		return nil
	})
	id := q.enqueue(`{"order":"a"}`)
	if err := <-q.told; !errors.Is(err, core.ErrLost) || !asynqlock.IsFailure(err) {
		t.Errorf("the task failed by %v; want %v, and that it counts", err, core.ErrLost)
	}
	if info := q.await(id, asynq.TaskStateCompleted); info.Retried != 1 {
		t.Errorf("the task was retried %d times, want once", info.Retried)
	}
}
