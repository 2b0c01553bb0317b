package redislock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
)

const (
	// holderVar makes this test binary a process that holds a lock: its value
	// is the address of the server.
	holderVar = "LOCKAROUND_TEST_HOLDER"

	crashKey = "crash"
	crashTTL = time.Second
)

// holdUntilKilled takes the lock, prints its token and holds until its standard
// input ends, or it is killed.
func holdUntilKilled(addr string) error {
	locks, err := core.New(redislock.New(redis.NewClient(&redis.Options{Addr: addr})), core.WithNamespace("test"))
	if err != nil {
		return err
	}
	lease, err := locks.Acquire(context.Background(), core.Policy{Key: crashKey, TTL: crashTTL, Wait: core.Forever})
	if err != nil {
		return err
	}
	fmt.Println(lease.Token())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// holder is a process that holds the lock.
type holder struct {
	token int64
	cmd   *exec.Cmd
}

// startHolder returns when the process holds the lock. It ends with the test.
func startHolder(t *testing.T, addr string) *holder {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{cmd: exec.Command(program)}
	h.cmd.Env = append(os.Environ(), holderVar+"="+addr)
	h.cmd.Stderr = os.Stderr
	if _, err := h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the holder ended without a lock: %v", err)
	}
	if h.token, err = strconv.ParseInt(strings.TrimSpace(line), 10, 64); err != nil {
		t.Fatal(err)
	}
	return h
}

// kill ends the process as kill -9 does. Killing it twice is a no-op.
func (h *holder) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill() // it may have ended by itself
		_ = h.cmd.Wait()         // reports the kill
	}
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 a process that holds the
// lock, while another waits: 5 times, or LOCKAROUND_KILLS.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	kills := 5
	if v := os.Getenv("LOCKAROUND_KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("LOCKAROUND_KILLS is %q; a number from 1 is right", v)
		}
		kills = n
	}
	addr := redistest.Start(t).Addr()
	locks := newEngine(t, redis.NewClient(&redis.Options{Addr: addr}))
	bound := crashTTL + redislock.New(nil).Capabilities().Wake
	var longest time.Duration
	for done := 0; done < kills; {
		for len(locks.queued) > 0 {
			<-locks.queued // of an Acquire that has its grant
		}
		h := startHolder(t, addr)
		type grant struct {
			*core.Lease
			at time.Time
		}
		next := make(chan grant, 1)
		go func() {
			lease := locks.take(t, crashKey, crashTTL)
			next <- grant{lease, time.Now()}
		}()

		var killed time.Time
		var got grant
		select {
		case <-locks.queued:
			killed = time.Now()
			h.kill()
			got = <-next
		case got = <-next:
			// This machine let the holder starve for a whole TTL. That it
			// was succeeded is right, but tells nothing about a kill.
			h.kill()
		}
		if got.Lease == nil {
			t.FailNow()
		}
		if got.Token() <= h.token {
			t.Errorf("kill %d: token %d after the killed holder's %d", done+1, got.Token(), h.token)
		}
		giveBack(t, got.Lease)
		if killed.IsZero() {
			continue
		}
		done++
		waited := got.at.Sub(killed)
		longest = max(longest, waited)
		if waited > bound {
			t.Errorf("kill %d: next grant after %v, want at most TTL + Wake = %v", done, waited, bound)
		}
	}
	t.Logf("%d holders killed; the longest until the next grant: %v, bound %v", kills, longest, bound)
}
