package redisserver_test

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/internal/redisserver"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersClockJumpsAndStaysWhenItRestarts(t *testing.T) {
	n, err := redisserver.Start(t.Context(), redisserver.Options{Clock: true})
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, "redis-server in PATH", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := exec.LookPath("gcc"); err != nil {
		daemon.Missing(t, "a C compiler", err)
	}
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
