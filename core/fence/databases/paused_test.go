package databases_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
)

const (
	// holderVar makes this test binary a process that holds the lock: its value is
	// what it does, the address of Redis, and the address of PostgreSQL.
	holderVar = "LOCKAROUND_TEST_PAUSED_HOLDER"

	pausedTTL  = time.Second
	lateWrites = 1000
)

// hold is that process. It says when it is ready to be stopped, and goes on when its
// standard input ends.
func hold(what string) error {
	words := strings.Fields(what)
	locks, err := core.New(redislock.New(redis.NewClient(&redis.Options{Addr: words[1]})), core.WithNamespace("shop"), core.WithStoreTimeout(20*time.Second))
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", words[2])
	if err != nil {
		return err
	}
	tokens, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		return err
	}
	stop := func() error {
		fmt.Println("ready")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	}
	p := core.Policy{Key: "stock:{.}", TTL: pausedTTL}
	if words[0] == "transaction" {
		_, err := decorator.WithLockTx(locks, p, decorator.Database{DB: db, Fence: tokens}, func(ctx context.Context, tx *sql.Tx, sku string) (struct{}, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ('paused')`)
			return struct{}{}, errors.Join(err, stop())
		})(context.Background(), "A-1")
		fmt.Println("lost:", errors.Is(err, core.ErrLost))
		return nil
	}
	accepted := 0
	_, err = decorator.WithLock(locks, p, func(ctx context.Context, _ string) (struct{}, error) {
		token, err := fence.For(ctx, "stock:A-1")
		if err := errors.Join(err, stop()); err != nil {
			return struct{}{}, err
		}
		for i := range lateWrites {
			tx, err := db.Begin()
			if err != nil {
				return struct{}{}, err
			}
			if err = tokens.Admit(context.Background(), tx, token); err == nil {
				accepted++
				_, err = tx.Exec(`INSERT INTO work VALUES ($1)`, fmt.Sprint("late ", i))
			}
			if err != nil && !errors.Is(err, fence.ErrStale) {
				return struct{}{}, err
			}
			if err != nil {
				err = tx.Rollback()
			} else {
				err = tx.Commit()
			}
			if err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})(context.Background(), "A-1")
	if !errors.Is(err, core.ErrLost) {
		return fmt.Errorf("after the pause: %w", err)
	}
	fmt.Println("accepted:", accepted)
	return nil
}

// startRedis returns the address of a server that ends with the test.
func startRedis(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	port, err := process.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // reports the kill
	})
	addr := "127.0.0.1:" + port
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = c.Close() }()
	until(t, "redis-server", func() bool {
		got, err := c.ConfigGet(t.Context(), "dir").Result()
		return err == nil && got["dir"] == dir // somebody else's server must not pass for this one
	})
	return addr
}

// holding is another process that holds the lock.
type holding struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// startHolder returns when the process is ready to be stopped. It ends with the test.
func startHolder(t testing.TB, what ...string) *holding {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), holderVar+"="+strings.Join(what, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // reports the kill
	})
	p := &holding{cmd, in, bufio.NewReader(out)}
	if line := p.line(t); line != "ready" {
		t.Fatalf("the holder says %q", line)
	}
	return p
}

func (p *holding) line(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the holder: %v", err)
	}
	return strings.TrimSpace(line)
}

func (p *holding) signal(t testing.TB, tell func(*os.Process) error) {
	t.Helper()
	if err := tell(p.Process); err != nil {
		t.Fatal(err)
	}
}

// TestProcessStoppedPastItsLeaseWritesNothing stops a process that holds the lock with
// SIGSTOP for three times its TTL, before its transaction or in its middle.
func TestProcessStoppedPastItsLeaseWritesNothing(t *testing.T) {
	for _, tc := range []struct{ what, says string }{
		{"writes", "accepted: 0"},
		{"transaction", "lost: true"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			for !stopHolder(t, tc.what, tc.says) {
			}
		})
	}
}

// stopHolder reports false if this machine let the holder starve for a whole TTL, so that its
// transaction had ended before it was stopped.
func stopHolder(t *testing.T, what, says string) bool {
	d := postgres.database(t)
	d.exec(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
	addr := startRedis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	e := newEngine(t, redislock.New(client))
	paused := startHolder(t, what, addr, d.source())
	paused.signal(t, process.Stop)
	over := time.NewTimer(3 * pausedTTL)
	next := late(func() error {
		_, err := decorator.WithLockTx(e, stock, decorator.Database{DB: d.DB, Fence: d.fence}, func(ctx context.Context, tx *sql.Tx, _ string) (struct{}, error) {
			_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ('next')`)
			return struct{}{}, err
		})(t.Context(), "A-1")
		return err
	})
	if what == "transaction" {
		waits := false // for the fence of the one that was stopped
		until(t, "a transaction that waits", func() bool {
			waits = d.blocked(t)
			return waits || len(next) > 0
		})
		if !waits {
			if err := <-next; err != nil {
				t.Fatal(err)
			}
			return false
		}
	} else if err := <-next; err != nil {
		t.Fatal(err)
	}
	<-over.C
	paused.signal(t, process.Cont)
	if err := paused.in.Close(); err != nil {
		t.Fatal(err)
	}
	if line := paused.line(t); line != says {
		t.Errorf("the one that was stopped says %q, want %q", line, says)
	}
	if what == "transaction" {
		if err := <-next; err != nil {
			t.Error(err)
		}
	}
	if all, next := d.number(t, `SELECT count(*) FROM work`), d.number(t, `SELECT count(*) FROM work WHERE id = 'next'`); all != 1 || next != 1 {
		t.Errorf("%d rows, %d of them the next holder's", all, next)
	}
	return true
}
