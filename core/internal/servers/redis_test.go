package servers

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("%s is required by LOCKAROUND_REQUIRE_SERVERS", p)
		}
		t.Skipf("needs %s in PATH", p)
	}
}

func TestServersClockJumpsAndStaysWhenItRestarts(t *testing.T) {
	need(t, "redis-server", "gcc")
	n, err := StartRedis(t.Context(), Options{Clock: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	do := func(words ...any) any {
		t.Helper()
		answer, err := n.Do(t.Context(), words...)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	// ahead expects the server's clock to be that much ahead of this process's.
	ahead := func(when string, want time.Duration) {
		t.Helper()
		before := time.Now()
		now := list(do("TIME"), nil)
		s, _ := strconv.ParseInt(now[0].(string), 10, 64)
		us, _ := strconv.ParseInt(now[1].(string), 10, 64)
		at := time.Unix(s, us*1000)
		if least, most := time.Until(at), at.Sub(before); most < want-time.Millisecond || least > want+time.Millisecond {
			t.Errorf("%s: the clock is %v to %v ahead, want %v", when, least, most, want)
		}
	}
	ahead("at first", 0)
	do("SET", "k", 1, "EX", 60)
	if err := n.Jump(-time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set back", -time.Hour)
	if left := do("TTL", "k").(int64); left < 3600 {
		t.Errorf("a key for a minute has %d s left when the clock was set back by an hour", left)
	}
	if err := n.Jump(2 * time.Hour); err != nil {
		t.Fatal(err)
	}
	ahead("set forward", time.Hour)
	if do("EXISTS", "k") != int64(0) {
		t.Error("a key for a minute is there an hour later")
	}
	if err := n.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ahead("restarted", time.Hour)
}

func TestWhatDoesNotStartLeavesNothing(t *testing.T) {
	need(t, "redis-server")
	bad := []string{"--no-such-option", "1"}
	for name, start := range map[string]func() error{
		"alone":     func() error { _, err := StartRedis(t.Context(), Options{Args: bad}); return err },
		"a Cluster": func() error { _, err := StartCluster(t.Context(), 2, 0, bad...); return err },
		"watched":   func() error { _, err := StartWatched(t.Context(), 1, time.Second, bad...); return err },
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
