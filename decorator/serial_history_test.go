//go:build unix

package decorator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/redisserver"
	"github.com/lockaround/lockaround/decorator/internal/serialcheck"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
)

// serialItems is the name of a variable: how many items TestHistoryOverProcesses runs.
const serialItems = "LOCKAROUND_SERIAL_ITEMS"

// serialPlan is what a worker process is to do.
type serialPlan struct {
	Socket, Name, File string
	TTL, Spacing       time.Duration
	Takes              time.Duration // a run, at most
	Fails              int           // one run in so many fails; 0: none
	Stuck              bool          // no run returns
}

// refusals is a store that tells of ends of runs that were refused.
type refusals struct {
	queue.Store
	refused func(h queue.Holder)
}

type refusalsQueue struct {
	queue.Queue
	refused func(h queue.Holder)
}

func (r refusals) Open(name string, rules queue.Rules) (queue.Queue, error) {
	q, err := r.Store.Open(name, rules)
	return refusalsQueue{q, r.refused}, err
}

func (q refusalsQueue) End(ctx context.Context, h queue.Holder, e queue.Ending) (queue.Step, error) {
	s, err := q.Queue.End(ctx, h, e)
	if errors.Is(err, queue.ErrSuperseded) {
		q.refused(h)
	}
	return s, err
}

// plannedSerial is the serial function of a process. refused is told of ends that came too late.
func plannedSerial(p serialPlan, rdb *redis.Client, refused func(queue.Holder), run func(context.Context, refund) error) (*core.Engine, *decorator.SerialFunc[refund], error) {
	e, err := core.New(redislock.New(rdb), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, err
	}
	store, err := redisqueue.New(rdb, "shop:queue:")
	if err != nil {
		return nil, nil, err
	}
	f, err := decorator.NewSerial(e, core.Policy{Name: "refund", Key: "refund:{OrderID}", TTL: p.TTL}, refusals{store, refused}, run,
		decorator.SerialPolicy{Spacing: p.Spacing, Attempts: 100, MaxLength: 1 << 20, Backoff: decorator.Backoff{Least: 5 * time.Millisecond}, Workers: 32})
	return e, f, err
}

// TestSerialProcess is a worker process that writes down what it runs.
func TestSerialProcess(t *testing.T) {
	beAChild(t, func(p serialPlan) error {
		history, err := os.OpenFile(p.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		rdb := patientClient(p.Socket)
		var f *decorator.SerialFunc[refund]
		note := func(e serialcheck.Event) {
			e.Process = p.Name
			line, _ := json.Marshal(e)               // it has strings and numbers
			_, _ = history.Write(append(line, '\n')) // what is not written shows
		}
		var leases sync.Map // of runs, by their tokens
		refused := func(h queue.Holder) {
			// Whether the lease had ended the lock says, and not the queue.
			if lease, ok := leases.Load(h.Token); ok && errors.Is(lease.(*core.Lease).Err(), core.ErrLost) {
				at := time.Now().UnixNano()
				note(serialcheck.Event{From: at - int64(10*p.TTL), At: at, Kind: serialcheck.Lost, Key: strings.TrimPrefix(h.Key, "refund:")})
			}
		}
		_, f, err = plannedSerial(p, rdb, refused, func(ctx context.Context, r refund) error {
			info, _ := decorator.RunFrom(ctx)
			lease, _ := core.LeaseFrom(ctx)
			e := serialcheck.Event{At: info.Started.UnixNano(), Kind: serialcheck.Started, Key: r.OrderID, Seq: info.Sequence, Attempt: info.Attempt, Token: lease.Token()}
			began := e.At
			leases.Store(lease.Token(), lease)
			note(e)
			if p.Stuck {
				<-ctx.Done()
			}
			if p.Takes > 0 {
				time.Sleep(rand.N(p.Takes))
			}
			fails := p.Fails > 0 && rand.IntN(p.Fails) == 0
			if at := time.Now().UnixNano(); !fails && lease.Err() == nil {
				e.At, e.Kind = at, serialcheck.Effect
				note(e)
			}
			e.At, e.Kind = time.Now().UnixNano(), serialcheck.Returned
			note(e)
			if lease.Err() != nil {
				e.From, e.Kind = began, serialcheck.Lost
				note(e)
				return lease.Err()
			}
			if fails {
				return errors.New("the provider is down")
			}
			return nil
		})
		if err != nil {
			return err
		}
		return f.Work(context.Background())
	})
}

// TestHistoryOverProcesses runs items by processes that are killed, stopped and cut off, and judges
// what they have written down.
func TestHistoryOverProcesses(t *testing.T) {
	items := 2000
	if text := os.Getenv(serialItems); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		items = n
	}
	for name, p := range map[string]serialPlan{
		"many keys": {TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50},
		"spaced":    {TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50, Spacing: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			keys, each := max(items/100, 4), 100
			if p.Spacing > 0 {
				keys, each = max(items/25, 4), 25
			}
			h := runHistory(t, p, keys, each)
			r := serialcheck.Check(h, p.Spacing)
			t.Logf("%d items, %d runs, %d effects of which %d are second ones, %d runs begun after a pause; the closest starts are %v apart", r.Accepted, r.Runs, r.Effects, r.Duplicates, r.Stale, r.Closest)
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if r.Accepted != keys*each {
				t.Errorf("%d items were accepted; want %d", r.Accepted, keys*each)
			}
		})
	}
}

// runHistory appends each items to so many keys, and breaks what it can while they run.
func runHistory(t *testing.T, p serialPlan, keys, each int) (all []serialcheck.Event) {
	t.Helper()
	srv := redisserver.Start(t)
	p.Socket = srv.Addr
	rdb := patientClient(p.Socket)
	defer func() { _ = rdb.Close() }()
	e, f, err := plannedSerial(p, rdb, func(queue.Holder) {}, func(context.Context, refund) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()

	dir := t.TempDir()
	var mu sync.Mutex
	note := func(e serialcheck.Event) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e)
	}
	var files []string
	start := func(slot, generation int) (*child, string) {
		plan := p
		plan.Name = fmt.Sprint("w", slot, ".", generation)
		plan.File = filepath.Join(dir, plan.Name)
		files = append(files, plan.File)
		c := startChild(t, "TestSerialProcess", plan)
		c.begin(t)
		return c, plan.Name
	}
	ctx, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for n := range 8 {
		producers.Go(func() {
			for i := range each {
				for key := n; key < keys; key += 8 {
					order, id := fmt.Sprint("A", key), fmt.Sprint(i)
					for ctx.Err() == nil {
						place, err := f.Enqueue(ctx, refund{ID: id, OrderID: order}, decorator.ItemID(id))
						if err == nil {
							note(serialcheck.Event{At: time.Now().UnixNano(), Kind: serialcheck.Accepted, Key: order, Seq: place.Sequence})
							break
						}
					}
				}
			}
		})
	}
	defer producers.Wait()
	defer cancel()
	appended := make(chan struct{})
	go func() { producers.Wait(); close(appended) }()

	breakAndWait(t, p, rdb, start, note, appended, time.Now().Add(2*time.Minute+time.Duration(keys*each)*5*time.Millisecond))
	mu.Lock()
	defer mu.Unlock()
	for _, name := range files {
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before it had begun
		}
		if err != nil {
			t.Fatal(err)
		}
		events, err := serialcheck.Read(file)
		_ = file.Close()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, events...)
	}
	return all
}

// breakAndWait has four processes work until nothing is left, and kills, stops and cuts them off.
func breakAndWait(t *testing.T, p serialPlan, rdb *redis.Client,
	start func(slot, generation int) (*child, string), note func(serialcheck.Event), appended <-chan struct{}, deadline time.Time,
) {
	t.Helper()
	store, err := redisqueue.New(rdb, "shop:queue:")
	if err != nil {
		t.Fatal(err)
	}
	q, err := store.Open("refund", queue.Rules{Attempts: 100, MaxLength: 1, KeepFor: time.Hour, KeepCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	const processes = 4
	var workers [processes]*child
	var names [processes]string
	for i := range workers {
		workers[i], names[i] = start(i, 0)
	}
	kills, pauses, cuts := 0, 0, 0
	for generation := 1; ; generation++ {
		select {
		case <-appended:
			s, err := q.Stats(t.Context())
			if err == nil && s.Length == 0 {
				t.Logf("%d kills, %d pauses, %d times all connections cut", kills, pauses, cuts)
				return
			}
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all has ended in time")
		}
		time.Sleep(200*time.Millisecond + rand.N(300*time.Millisecond))
		i := rand.IntN(processes)
		from := time.Now().UnixNano()
		switch rand.IntN(4) {
		case 0, 1:
			workers[i].kill()
			_ = workers[i].wait() // reports the kill
			note(serialcheck.Event{From: from, At: time.Now().UnixNano(), Kind: serialcheck.Killed, Process: names[i]})
			workers[i], names[i] = start(i, generation)
			kills++
		case 2:
			_ = workers[i].cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(p.TTL + p.TTL/4)
			_ = workers[i].cmd.Process.Signal(syscall.SIGCONT)
			note(serialcheck.Event{From: from, At: time.Now().UnixNano(), Kind: serialcheck.Paused, Process: names[i]})
			pauses++
		case 3:
			_ = rdb.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err() // as many as there are
			cuts++
		}
	}
}
