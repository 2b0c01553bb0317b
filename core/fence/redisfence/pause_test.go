package redisfence_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// role is that of a process that holds the lock, which is told the server's address.
const role = "holder"

var policy = core.Policy{Key: "stock:42", Wait: core.Forever, TTL: time.Second}

func openLocks(addr string) (*redis.Client, *core.Engine, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("test"), core.WithStoreTimeout(20*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
	return rdb, locks, err
}

// lateWrites is how often a holder that was stopped writes by each guard.
const lateWrites = 1000

// holder takes the lock, waits for the address of a service, writes with the token that
// it had, in Redis and in the memory of the service, and says what became of that.
func holder(told string) error {
	var addr string
	if err := json.Unmarshal([]byte(told), &addr); err != nil {
		return err
	}
	rdb, locks, err := openLocks(addr)
	if err != nil {
		return err
	}
	lease, err := locks.Acquire(context.Background(), policy)
	if err != nil {
		return err
	}
	token, err := fence.For(lease.Context(context.Background()), policy.Key)
	if err != nil {
		return err
	}
	fmt.Println("holds")
	service, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	ctx := fence.NewContext(context.Background(), token)
	client := &http.Client{Transport: httplock.SendTokens(nil)}
	var inRedis, inMemory int
	for range lateWrites {
		if err := set.Run(ctx, rdb, token, []string{"units:{stock:42}"}, "of the first").Err(); errors.Is(err, fence.ErrStale) {
			inRedis++
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSpace(service)+"/stock/42", nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusPreconditionFailed {
			inMemory++
		}
	}
	fmt.Printf("stale %d and %d of %d\n", inRedis, inMemory, lateWrites)
	return nil
}

// TestWritesOfAProcessThatWasStoppedAreRefused stops a holder for three times its TTL.
func TestWritesOfAProcessThatWasStoppedAreRefused(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	var guard fence.Memory
	var written atomic.Int64
	mux := http.NewServeMux()
	mux.Handle("PUT /stock/{sku}", httplock.Fence(&guard, "stock:{path.sku}")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		token, err := fence.For(r.Context(), "stock:42")
		if err == nil {
			err = guard.Do(r.Context(), token, func() error { written.Add(1); return nil })
		}
		if err != nil {
			t.Error(err)
		}
	})))
	service := httptest.NewServer(mux)
	defer service.Close()
	paused, err := child.Start(t, role, addr)
	if err != nil {
		t.Fatal(err)
	}
	mustSay := func(want string) {
		t.Helper()
		if line, err := paused.Out.ReadString('\n'); line != want+"\n" {
			t.Fatalf("the holder says %q, %v; want %q", line, err, want)
		}
	}
	mustSay("holds")
	if err := paused.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()

	rdb, locks, err := openLocks(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(t, rdb)
	defer closeClient(t, locks)
	next := policy
	next.TTL = 5 * time.Minute // this process is not to lose its lease
	err = locks.Do(t.Context(), next, func(ctx context.Context) error {
		token, err := fence.For(ctx, policy.Key)
		if err != nil {
			return err
		}
		if err := errors.Join(redisfence.New(rdb).Admit(ctx, token), guard.Admit(ctx, token)); err != nil {
			return err
		}
		<-time.After(3*policy.TTL - time.Since(stopped))
		// Between the reading and the writing of this one.
		if _, err := fmt.Fprintln(paused.In, service.URL); err != nil {
			return err
		}
		if err := paused.Cont(); err != nil {
			return err
		}
		mustSay(fmt.Sprintf("stale %d and %d of %d", lateWrites, lateWrites, lateWrites))
		return set.Run(ctx, rdb, token, []string{"units:{stock:42}"}, "of the second").Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, rdb, "units:{stock:42}", "of the second")
	if n := written.Load(); n != 0 {
		t.Errorf("%d writes got past the guard in memory", n)
	}
}
