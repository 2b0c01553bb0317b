package redisserver_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/redisserver"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersClockJumpsAndStaysWhenItRestarts(t *testing.T) {
	daemon.Need(t, "redis-server")
	daemon.Need(t, "gcc")
	n, err := redisserver.Start(t.Context(), redisserver.Options{Clock: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	// ahead expects the server's clock to be that much ahead of this process's.
	ahead := func(when string, want time.Duration) {
		t.Helper()
		before := time.Now()
		at, err := n.Client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if least, most := time.Until(at), at.Sub(before); most < want-time.Millisecond || least > want+time.Millisecond {
			t.Errorf("%s: the clock is %v to %v ahead, want %v", when, least, most, want)
		}
	}
	ahead("at first", 0)
	if err := n.Client.Set(t.Context(), "k", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := n.Jump(-time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set back", -time.Hour)
	if left := n.Client.PTTL(t.Context(), "k").Val(); left < time.Hour {
		t.Errorf("a key for a minute has %v left when the clock was set back by an hour", left)
	}
	if err := n.Jump(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set forward", time.Hour)
	if n.Client.Exists(t.Context(), "k").Val() != 0 {
		t.Error("a key for a minute is there an hour later")
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ahead("restarted", time.Hour)
}

func TestWhatDoesNotStartLeavesNothing(t *testing.T) {
	daemon.Need(t, "redis-server")
	bad := []string{"--no-such-option", "1"}
	for name, start := range map[string]func() error{
		"alone":     func() error { _, err := redisserver.Start(t.Context(), redisserver.Options{Args: bad}); return err },
		"a Cluster": func() error { _, err := redisserver.StartCluster(t.Context(), 2, 0, bad...); return err },
		"watched":   func() error { _, err := redisserver.StartWatched(t.Context(), 1, time.Second, bad...); return err },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			t.Setenv("TMPDIR", folder)
			if err := start(); err == nil || !strings.Contains(err.Error(), "no-such-option") {
				t.Errorf("start: %v; want what redis-server says", err)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}
