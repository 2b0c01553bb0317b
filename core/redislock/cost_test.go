package redislock_test

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

var commandCalls = regexp.MustCompile(`(?m)^cmdstat_(\S+):calls=(\d+)`)

// commands returns how often clients have sent each command. Those that scripts
// run count as well; no script runs another.
func commands(t testing.TB, c *redis.Client) map[string]int {
	t.Helper()
	text, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]int)
	for _, m := range commandCalls.FindAllStringSubmatch(text, -1) {
		calls[m[1]], _ = strconv.Atoi(m[2])
	}
	return calls
}

func scripts(calls map[string]int) int { return calls["eval"] + calls["evalsha"] }

// warm has each process's connections, scripts and subscription set up, and lets it find out by what the
// server deletes a key.
func warm(ps ...*process) {
	gather(len(ps), func(i int) {
		if err := ps[i].Ping(bounded(ps[i].t)); err != nil {
			ps[i].t.Error(err)
		}
	})
	for _, s := range protocol.Scripts() {
		if err := ps[0].client.ScriptLoad(ps[0].t.Context(), s.Source).Err(); err != nil {
			ps[0].t.Fatal(err)
		}
	}
	for _, p := range ps {
		for range 3 {
			p.release(p.take("k", lasting))
		}
	}
}

// deletesBy returns the command by which a server deletes a key that has a value, or EVALSHA.
func deletesBy(t *testing.T, c *redis.Client) string {
	t.Helper()
	for _, command := range []string{"delex", "delifeq"} {
		if n, err := c.Do(t.Context(), "COMMAND", "INFO", command).Slice(); err == nil && n[0] != nil {
			return command
		}
	}
	return "evalsha"
}

func TestFreeKeyCostsNativeCommandsAndOneShortScriptWhereTheServerNeedsIt(t *testing.T) {
	server := testservers.Redis(t)
	a := join(t, server.Addr())
	warm(a)
	count := func(rounds int, during func(driver.Grant), want map[string]int) {
		t.Helper()
		before := commands(t, a.client)
		for range rounds {
			g := a.take("k", lasting)
			during(g)
			a.release(g)
		}
		after := commands(t, a.client)
		for name, each := range want {
			if n := after[name] - before[name]; n != each*rounds {
				t.Errorf("%d %s for %d rounds, want %d", n, name, rounds, each*rounds)
			}
		}
	}
	by := deletesBy(t, a.client)
	want := map[string]int{
		"set": 1, "xadd": 1, "evalsha": 0, "get": 0, "del": 0, "delex": 0, "delifeq": 0,
		"time": 0, "hmget": 0, "hset": 0, "eval": 0, "subscribe": 0, "script|load": 0,
	}
	if want[by] = 1; by == "evalsha" {
		want["get"], want["del"] = 1, 1
	}
	t.Log("released by", by)
	count(50, func(driver.Grant) {}, want)
	// A renewal notes the token in the key, which the session no longer knows then.
	count(50, func(g driver.Grant) { a.renew(g, lasting) }, map[string]int{"evalsha": 2, "delex": 0, "delifeq": 0})
	if n := a.client.DBSize(t.Context()).Val(); n != 1 {
		t.Errorf("%d keys are left, want the stream alone", n)
	}
}

func TestContendedKeyCostsLittleMore(t *testing.T) {
	for _, processes := range []int{2, 32} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			server := testservers.Redis(t)
			ps := make([]*process, processes)
			for i := range ps {
				ps[i] = join(t, server.Addr())
			}
			warm(ps...)
			before := commands(t, ps[0].client)
			rounds := 640 / processes
			var waited atomic.Int64
			gather(processes, func(i int) {
				for range rounds {
					start := time.Now()
					g, err := ps[i].insist(bounded(t), driver.Request{ID: newID("k"), TTL: 30 * time.Second, Wait: true})
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					waited.Add(int64(time.Since(start)))
					// Who learns of his grant from a push has a short lease, until it is renewed.
					if err := ps[i].end(g); err != nil && (!errors.Is(err, driver.ErrNotHeld) || time.Now().Before(g.Deadline)) {
						t.Errorf("release: %v", err)
					}
				}
			})
			sections := float64(rounds * processes)
			// A busy machine makes everybody wait long enough to refresh.
			refreshes := float64(waited.Load()) / float64(protocol.MaxPlaceTTL/4)
			after := commands(t, ps[0].client)
			// A subscription that seems to be deaf then is replaced: its waiters ask once more, and
			// it asks after its leases.
			refreshes += float64((after["subscribe"] - before["subscribe"]) * 2)
			n := float64(scripts(after) - scripts(before))
			t.Logf("%.3f commands per critical section", n/sections)
			if n > max(2.2*sections, 2.1*sections+refreshes) {
				t.Errorf("%.0f commands for %.0f critical sections, want at most 2.2 for each", n, sections)
			}
		})
	}
}

// TestClusterBusyKeyIsToldByOneCommand has clients that may send a command again, unasked,
// after a pause. Who is told later than that may have asked twice, and has the copy undone. The first
// time the key is taken to be free.
func TestClusterBusyKeyIsToldByOneCommand(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 2, 0)
	a := member(t, c)
	_, slot := keyOn(t, c, c.Masters()[0], 0)
	client := redis.NewClient(&redis.Options{Addr: c.Master(slot).Addr()})
	defer func() { _ = client.Close() }()
	keys := 0
	for _, tt := range []struct {
		name     string
		pause    time.Duration
		commands int // for a refusal
	}{
		{"a pause longer than any answer takes", 10 * hang, 1},
		{"no pause", -1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const tries, rounds = 5, 200
			want := 1 + tt.commands*tries
			least := math.MaxInt // an end that is answered late is sent once more
			for round := 0; round < rounds && least > want; round++ {
				key, _ := keyOn(t, c, c.Masters()[0], keys) // one that no session has found busy
				keys++
				b := newEngine(t, redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: c.Addrs(), ReadTimeout: attempt, MinRetryBackoff: tt.pause, MaxRetryBackoff: tt.pause,
				}))
				giveBack(t, b.take(t, key, lasting)) // b knows where it is
				for _, e := range []*engine{a, b} {
					if err := e.Ping(t.Context()); err != nil { // it is subscribed
						t.Fatal(err)
					}
				}
				lease := a.take(t, key, lasting)
				before := commands(t, client)["evalsha"]
				for range tries {
					if _, err := b.Acquire(t.Context(), core.Policy{Key: key}); !errors.Is(err, core.ErrBusy) {
						t.Fatal(err)
					}
				}
				if err := b.Close(); err != nil { // which finishes the clean-ups
					t.Fatal(err)
				}
				n := commands(t, client)["evalsha"] - before
				if n < want || n > want && tt.commands == 1 {
					t.Fatalf("%d commands for %d refusals, want %d", n, tries, want)
				}
				least = min(least, n)
				giveBack(t, lease)
			}
			if least > want {
				t.Errorf("%d commands at least for %d refusals, want %d", least, tries, want)
			}
		})
	}
}
