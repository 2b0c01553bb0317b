package fence_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator"
)

const (
	// role is that of a process that holds the lock, which is told what it does, the address
	// of Redis, and the data source of PostgreSQL.
	role = "holder"

	pausedTTL  = time.Second
	lateWrites = 1000
)

// hold is that process. It says when it is ready to be stopped, and goes on when its
// standard input ends.
func hold(told string) error {
	var words []string
	if err := json.Unmarshal([]byte(told), &words); err != nil {
		return err
	}
	if words[0] == "serial" {
		return workSerially(words)
	}
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

// line returns what the process says next.
func line(t testing.TB, p *child.Process) string {
	t.Helper()
	line, err := p.Out.ReadString('\n')
	if err != nil {
		t.Fatalf("the holder: %v", err)
	}
	return strings.TrimSpace(line)
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
	d.Must(t, `CREATE TABLE work (id VARCHAR(100) PRIMARY KEY)`)
	addr := testservers.Redis(t).Addr()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	e := newEngine(t, redislock.New(client))
	paused, err := child.Start(t, role, []string{what, addr, d.source()})
	if err != nil {
		t.Fatal(err)
	}
	if says := line(t, paused); says != "ready" {
		t.Fatalf("the holder says %q", says)
	}
	if err := paused.Stop(); err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(paused.Cont(), paused.In.Close()); err != nil {
		t.Fatal(err)
	}
	if got := line(t, paused); got != says {
		t.Errorf("the one that was stopped says %q, want %q", got, says)
	}
	if what == "transaction" {
		if err := <-next; err != nil {
			t.Error(err)
		}
	}
	if all, next := d.Number(t, `SELECT count(*) FROM work`), d.Number(t, `SELECT count(*) FROM work WHERE id = 'next'`); all != 1 || next != 1 {
		t.Errorf("%d rows, %d of them the next holder's", all, next)
	}
	return true
}
