package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// The test binary is also the processes of a service: these variables say where their Redis
// is, and what each is called.
const (
	redisVar    = "LOCKAROUND_PAGE_REDIS"
	identityVar = "LOCKAROUND_PAGE_IDENTITY"
)

// products are what the processes of the service want.
var products = []string{"stock:book", "stock:pen", "stock:lamp", "stock:chair", "stock:cup"}

// beAProcess is the main function of a process of the service, if this is one.
func beAProcess() {
	addr := os.Getenv(redisVar)
	if addr == "" {
		return
	}
	rdb := clientOf(addr)
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:test"), core.WithIdentity(os.Getenv(identityVar)), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for i, key := range products {
		for range 3 - i/2 {
			load.Go(func() {
				for ctx.Err() == nil {
					_ = locks.Do(ctx, core.Policy{Name: "deduct", Key: key, Wait: 2 * time.Second}, func(ctx context.Context) error {
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(i+1) * 20 * time.Millisecond):
						}
						return nil
					})
				}
			})
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
	cancel()
	load.Wait()
	_ = locks.Close()
	_ = rdb.Close()
	os.Exit(0)
}

// startProcess starts a process of the service, and returns how to kill it.
func startProcess(t *testing.T, addr, identity string) (kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), redisVar+"="+addr, identityVar+"="+identity)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // as kill -9 does; it may have ended by itself
		_ = cmd.Wait()         // reports the kill
	})
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Fatalf("the process %s says %q, %v", identity, line, err)
	}
	return kill
}

func clientOf(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DialTimeout: patience, ReadTimeout: patience})
}

// onRedis returns an engine of this process beside those of the others, with its page.
func onRedis(t *testing.T, addr, identity string, opts ...lockpage.Option) *service {
	t.Helper()
	rdb := clientOf(addr)
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:test"), core.WithIdentity(identity), core.WithForceRelease(), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(locks.Close(), rdb.Close()); err != nil {
			t.Error(err)
		}
	})
	return &service{t: t, locks: locks, url: host(t, locks, opts...)}
}

// Four processes of a service use one Redis. The page of one of them shows what all do, within
// a second, and says which of them was killed.
func TestPageShowsAllProcessesAndWhichIsKilled(t *testing.T) {
	addr := testservers.Redis(t).Addr()
	s, other := onRedis(t, addr, "shop-1", lockpage.ShowKeys()), onRedis(t, addr, "shop-5")
	other.hold(core.Policy{Name: "report", Key: "report:weekly"}) // engines are heard from their first lock on
	kills := map[string]func(){}
	for i := 2; i <= 4; i++ {
		name := fmt.Sprint("shop-", i)
		kills[name] = startProcess(t, addr, name)
	}
	b := open(t)
	b.visit(s.url)
	b.live()
	for i := 1; i <= 5; i++ {
		name := fmt.Sprint("shop-", i)
		b.until("process "+name+" to be alive", fmt.Sprintf(`[...document.querySelectorAll('[data-s="process"] tr')].some(r => r.textContent.includes(%q) && r.textContent.includes("alive"))`, name))
	}
	for _, key := range products {
		b.until("the key "+key, has(`[data-s="key"] th`, key))
	}
	b.until("holders of other processes", `[...document.querySelectorAll('[data-s="key"] tr')].some(r => /shop-[234]/.test(r.textContent))`)
	b.until("a wait", `document.querySelector('[data-s="key"] td.wait time') !== null`)

	// A wait that begins now, at another engine than that of the page.
	s.hold(core.Policy{Name: "report", Key: "report:daily"})
	b.until("the hold", has(`[data-s="key"] th`, "report:daily"))
	other.wait(core.Policy{Name: "report", Key: "report:daily"})
	const row = `[...document.querySelectorAll('[data-s="key"] tr')].find(r => r.textContent.includes("report:daily"))`
	b.until("the wait at another engine", row+`?.querySelector("td.wait time")`)
	t.Logf("a wait at another engine was on the page %v ms after it began", eval[float64](b, `Date.now() - `+row+`.querySelector("td.wait time").dataset.t`))

	kills["shop-3"]()
	b.until("the killed process to be gone", `[...document.querySelectorAll('[data-s="process"] tr.gone')].some(r => r.textContent.includes("shop-3") && r.textContent.includes("gone"))`)
	if !eval[bool](b, `[...document.querySelectorAll('[data-s="process"] tr')].every(r => r.textContent.includes("shop-3") || !r.textContent.includes("gone"))`) {
		t.Errorf("others are said to be gone:\n%s", eval[string](b, "document.body.innerText"))
	}
	b.clean(s.url)
}
