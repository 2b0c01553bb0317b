package server

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS: %v", program, err)
		}
		t.Skipf("needs %s in PATH: %v", program, err)
	}
}

func TestServersClockJumpsAndStaysWhenItRestarts(t *testing.T) {
	need(t, "redis-server")
	need(t, "gcc")
	n, err := nodeIn(func(folder string) (*Server, error) { return launchClocked(t.Context(), folder, forgetful...) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	// ahead expects the server's clock to be that much ahead of this process's.
	ahead := func(when string, want time.Duration) {
		t.Helper()
		before := time.Now()
		at, err := n.client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if least, most := time.Until(at), at.Sub(before); most < want-time.Millisecond || least > want+time.Millisecond {
			t.Errorf("%s: the clock is %v to %v ahead, want %v", when, least, most, want)
		}
	}
	ahead("at first", 0)
	if err := n.client.Set(t.Context(), "k", 1, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	if err := n.Jump(-time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set back", -time.Hour)
	if left := n.client.PTTL(t.Context(), "k").Val(); left < time.Hour {
		t.Errorf("a key for a minute has %v left when the clock was set back by an hour", left)
	}
	if err := n.Jump(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set forward", time.Hour)
	if n.client.Exists(t.Context(), "k").Val() != 0 {
		t.Error("a key for a minute is there an hour later")
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ahead("restarted", time.Hour)
}
