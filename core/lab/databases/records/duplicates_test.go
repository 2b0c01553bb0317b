package records_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/redisrecords"
)

const senderRole = "sender"

// storm is what a sender sends: each order so often at once.
type storm struct {
	Addr          string
	Orders, Times int
	Wait          time.Duration
}

// outcome is what it got.
type outcome struct {
	Answers map[int64]int // by the number that the effect has
	Busy    int
	Other   []string
}

// send is a process of senders. It begins when it is told to.
func send(told string) error {
	var s storm
	if err := json.Unmarshal([]byte(told), &s); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr, PoolTimeout: time.Minute, ReadTimeout: time.Minute})
	e, err := core.New(redislock.New(rdb), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	records, err := redisrecords.New(rdb, "shop:once:")
	if err != nil {
		return err
	}
	f, err := idempotent.New(e, core.Policy{Key: "buy:{ID}", Wait: s.Wait}, records, func(ctx context.Context, o order) (receipt, error) {
		time.Sleep(100 * time.Millisecond)
		n, err := rdb.Incr(ctx, fmt.Sprint("effects:", o.ID)).Result()
		return receipt{n}, err
	}, idempotent.Policy{Died: idempotent.Refuse})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	out := outcome{Answers: make(map[int64]int)}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range s.Orders * s.Times {
		all.Go(func() {
			got, err := f.Call(context.Background(), order{int64(i % s.Orders)})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				out.Answers[got.Run]++
			case errors.Is(err, core.ErrBusy):
				out.Busy++
			default:
				out.Other = append(out.Other, err.Error())
			}
		})
	}
	all.Wait()
	return errors.Join(json.NewEncoder(os.Stdout).Encode(out), e.Close(), rdb.Close())
}

func TestDuplicatesOverProcessesRunOnce(t *testing.T) {
	const processes, orders = 4, 10
	sent := counts.Of(t, "duplicates", 800, 10_000)
	for _, wait := range []time.Duration{0, time.Minute} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			addr := testservers.Redis(t).Addr()
			var senders [processes]*child.Process
			for i := range senders {
				s, err := child.Start(t, senderRole, storm{addr, orders, sent / processes / orders, wait})
				if err != nil {
					t.Fatal(err)
				}
				if line, err := s.Out.ReadString('\n'); line != "ready\n" {
					t.Fatalf("the sender says %q, %v", line, err)
				}
				senders[i] = s
			}
			for _, s := range senders {
				if _, err := s.In.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			answered, busy := 0, 0
			for _, s := range senders {
				var got outcome
				if err := json.NewDecoder(s.Out).Decode(&got); err != nil {
					t.Fatal(err)
				}
				answered += got.Answers[1]
				busy += got.Busy
				if delete(got.Answers, 1); len(got.Answers)+len(got.Other) > 0 {
					t.Errorf("other answers: %v; other errors: %d, such as %.1q", got.Answers, len(got.Other), got.Other)
				}
			}
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = rdb.Close() }()
			for id := range orders {
				if n := rdb.Get(t.Context(), fmt.Sprint("effects:", id)).Val(); n != "1" {
					t.Errorf("order %d has had %q effects", id, n)
				}
			}
			if answered+busy != sent/processes/orders*processes*orders || wait > 0 && busy > 0 || answered < orders {
				t.Errorf("%d answered, %d busy", answered, busy)
			}
			t.Logf("%d orders were sent %d times in all by %d processes: 1 run each, %d got its answer and %d were refused as concurrent", orders, answered+busy, processes, answered, busy)
		})
	}
}
