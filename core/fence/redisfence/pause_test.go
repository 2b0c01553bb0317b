package redisfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/redislock"
)

// holderVar makes this test binary a holder of the lock: its value is the server's
// socket.
const holderVar = "LOCKAROUND_TEST_HOLDER"

var policy = core.Policy{Key: "stock:42", Wait: core.Forever, TTL: time.Second}

func openLocks(socket string) (*redis.Client, *core.Engine, error) {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)))
	return rdb, locks, err
}

// holder takes the lock, waits for a line, writes with the token that it had, and says
// what became of that.
func holder(socket string) error {
	rdb, locks, err := openLocks(socket)
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
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	err = set.Run(context.Background(), rdb, token, []string{"units:{stock:42}"}, "of the first").Err()
	fmt.Println(map[bool]string{true: "stale", false: fmt.Sprint("not stale: ", err)}[errors.Is(err, fence.ErrStale)])
	return nil
}

func TestWriteOfAProcessThatWasStoppedIsRefused(t *testing.T) {
	socket := startRedis(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderVar+"="+socket)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
	}()
	says := bufio.NewScanner(out)
	mustSay := func(want string) {
		t.Helper()
		if !says.Scan() || says.Text() != want {
			t.Fatalf("the holder says %q, %v; want %q", says.Text(), says.Err(), want)
		}
	}
	mustSay("holds")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	rdb, locks, err := openLocks(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer closeClient(t, rdb)
	defer closeClient(t, locks)
	err = locks.Do(t.Context(), policy, func(ctx context.Context) error {
		token, err := fence.For(ctx, policy.Key)
		if err != nil {
			return err
		}
		if err := redisfence.New(rdb).Admit(ctx, token); err != nil {
			return err
		}
		// Between the reading and the writing of this one.
		if _, err := fmt.Fprintln(in); err != nil {
			return err
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		mustSay("stale")
		return set.Run(ctx, rdb, token, []string{"units:{stock:42}"}, "of the second").Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, rdb, "units:{stock:42}", "of the second")
}
