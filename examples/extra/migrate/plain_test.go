package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// plainTTL is how long a lock lasts whose process has died.
const plainTTL = 2 * time.Second

// plainLibraries are libraries that keep a lock in one string of Redis, whose name is given. The functions call section with the lock.
var plainLibraries = map[string]func(rdb *redis.Client) func(ctx context.Context, name string, section func()) error{
	"redsync": func(rdb *redis.Client) func(context.Context, string, func()) error {
		all := redsync.New(goredis.NewPool(rdb))
		return func(ctx context.Context, name string, section func()) error {
			m := all.NewMutex(name, redsync.WithExpiry(plainTTL), redsync.WithTries(1000), redsync.WithRetryDelay(5*time.Millisecond))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			section()
			_, err := m.UnlockContext(ctx)
			return err
		}
	},
	"redislock": func(rdb *redis.Client) func(context.Context, string, func()) error {
		all := bsm.New(rdb)
		return func(ctx context.Context, name string, section func()) error {
			l, err := all.Obtain(ctx, name, plainTTL, &bsm.Options{RetryStrategy: bsm.LinearBackoff(5 * time.Millisecond)})
			if err != nil {
				return err
			}
			section()
			return l.Release(ctx)
		}
	},
	"lockaround": func(rdb *redis.Client) func(context.Context, string, func()) error {
		locks, err := core.New(redislock.New(rdb, redislock.WithKeys(func(key string) string { return strings.TrimPrefix(key, "shop/") })),
			core.WithNamespace("shop"))
		return func(ctx context.Context, name string, section func()) error {
			if err != nil {
				return err
			}
			return locks.Do(ctx, core.Policy{Key: name, Name: "plain", TTL: plainTTL, Wait: time.Minute}, func(context.Context) error {
				section()
				return nil
			})
		}
	},
}

// plainProcess takes locks of one library until it is killed, and writes when it has one, and when no longer.
func plainProcess(library, addr, file string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	lock := plainLibraries[library](rdb)
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	for range 3 {
		go func() {
			for {
				name := fmt.Sprint("order:", rand.IntN(20))
				_ = lock(context.Background(), name, func() { // connections are cut
					began := time.Now().UnixNano()
					fmt.Fprintf(out, "%s %d 0\n", name, began)
					if rand.IntN(20) == 0 {
						time.Sleep(time.Millisecond)
					}
					fmt.Fprintf(out, "%s %d %d\n", name, began, time.Now().UnixNano())
				})
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
	os.Exit(0)
}

// period is a time for which a process had a lock.
type period struct {
	name         string
	began, ended int64 // in ns; ended is 0 if the process was killed before
	by           string
}

// plainPeriods reads what a process has written.
func plainPeriods(t *testing.T, by, file string) []period {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	open := make(map[int64]period)
	var all []period
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		p := period{by: by}
		if n, _ := fmt.Sscan(lines.Text(), &p.name, &p.began, &p.ended); n < 3 {
			continue // the process was killed while it wrote that
		}
		if p.ended == 0 {
			open[p.began] = p
			continue
		}
		delete(open, p.began)
		all = append(all, p)
	}
	for _, p := range open {
		all = append(all, p)
	}
	return all
}

// Three processes lock the same keys, each by another library. They are killed in their sections, and their
// connections are cut.
func TestPlainKeysExcludeOtherLibraries(t *testing.T) {
	sections := counts.Of(t, "sections", 5_000, 100_000)
	addr := testservers.Redis(t).Addr()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	folder := t.TempDir()
	var all []period
	var mu sync.Mutex // of all
	var processes sync.WaitGroup
	over := make(chan struct{})
	for library := range plainLibraries {
		processes.Go(func() {
			for n, ended := 0, false; !ended; n++ {
				file := filepath.Join(folder, fmt.Sprint(library, n))
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "MIGRATE_PLAIN="+strings.Join([]string{library, addr, file}, " "))
				cmd.Stderr = os.Stderr
				open, err := cmd.StdinPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-over:
					ended = true
				case <-time.After(time.Second + rand.N(time.Second)):
				}
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				_ = open.Close()
				killed := time.Now().UnixNano()
				mu.Lock()
				for _, p := range plainPeriods(t, library, file) {
					if p.ended == 0 && killed-p.began > int64(plainTTL/2) {
						p.ended = p.began + int64(plainTTL/2) // it hung: its lock may have expired
					} else if p.ended == 0 {
						p.ended = killed
					}
					all = append(all, p)
				}
				mu.Unlock()
			}
		})
	}
	for began := time.Now(); ; {
		time.Sleep(100 * time.Millisecond)
		if err := rdb.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		enough := len(all) >= sections || time.Since(began) > 10*time.Minute
		mu.Unlock()
		if enough {
			break
		}
	}
	close(over)
	processes.Wait()
	slices.SortFunc(all, func(a, b period) int { return int(a.began - b.began) })
	last, by, overlaps, longest := make(map[string]period), make(map[string]int), 0, time.Duration(0)
	for _, p := range all {
		by[p.by]++
		before, ok := last[p.name]
		if free := time.Duration(p.began - before.ended); ok && free > longest {
			longest = free
		}
		if ok && p.began < before.ended && time.Duration(p.ended-p.began) < plainTTL/2 && time.Duration(before.ended-before.began) < plainTTL/2 {
			overlaps++
			t.Errorf("%s: %s had it from %d to %d, and %s from %d", p.name, before.by, before.began, before.ended, p.by, p.began)
		}
		if !ok || p.ended > before.ended {
			last[p.name] = p
		}
	}
	t.Logf("%d sections, %v, %d overlaps; nobody had a key for up to %v", len(all), by, overlaps, longest)
	if len(by) < len(plainLibraries) || len(all) < sections {
		t.Errorf("%d sections by %v; want %d by all", len(all), by, sections)
	}
	if limit := plainTTL + 2*time.Second; longest > limit {
		t.Errorf("nobody had a key for %v, want %v at most", longest, limit)
	}
}
