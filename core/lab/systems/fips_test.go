package main

import (
	"context"
	"crypto/sha1" // for what is refused
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

const strict = "fips140=only"

// TestLocksWorkUnderFIPS140 starts itself again with GODEBUG=fips140=only, under which SHA-1, by which Redis
// names scripts, panics.
func TestLocksWorkUnderFIPS140(t *testing.T) {
	if os.Getenv("GODEBUG") != strict {
		again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		again.Env = append(os.Environ(), "GODEBUG="+strict)
		said, err := again.CombinedOutput()
		switch {
		case err != nil:
			t.Fatalf("%v: %s", err, said)
		case strings.Contains(string(said), "--- SKIP"):
			t.Skipf("%s", said)
		}
		return
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("SHA-1 is not refused, so that nothing is tested")
			}
		}()
		sha1.New().Sum(nil)
	}()
	client := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
	defer client.Close() //nolint:errcheck // the test is over
	var nodes []*redis.Client
	for range 3 {
		n := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
		defer n.Close() //nolint:errcheck // the test is over
		nodes = append(nodes, n)
	}
	script := redisfence.NewScript(`return redis.call('INCR', KEYS[1])`)
	for name, d := range map[string]driver.Driver{"redislock": redislock.New(client), "redlock": redlock.New(nodes)} {
		locks, err := core.New(d, core.WithNamespace(name))
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		err = locks.Do(t.Context(), core.Policy{Key: "a"}, func(ctx context.Context) error {
			token, err := fence.For(ctx, "a")
			if err != nil {
				return err
			}
			return errors.Join(redisfence.New(client).Admit(ctx, token), script.Run(ctx, client, token, []string{name}).Err())
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	locks, err := core.New(redislock.New(client), core.WithNamespace("functions"))
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	values, err := rediscache.New(client, "values:")
	if err != nil {
		t.Fatal(err)
	}
	cached, err := cache.New(locks, core.Policy{Name: "cached", Key: "c:{.}"}, values, func(_ context.Context, in string) (string, error) { return in, nil }, cache.Policy{Expiry: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := cached.Get(t.Context(), "b"); err != nil || got != "b" {
		t.Errorf("a cached function: %q, %v", got, err)
	}
	queues, err := redisqueue.New(client, "queues:")
	if err != nil {
		t.Fatal(err)
	}
	queued, err := serial.New(locks, core.Policy{Name: "serial", Key: "s:{.}"}, queues, func(context.Context, string) error { return nil }, serial.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queued.Enqueue(t.Context(), "b"); err != nil {
		t.Errorf("a serial function: %v", err)
	}
}
