// Package lockaround_test runs lockaround as it is deployed: locks over HTTP,
// over gRPC and around functions at once, in processes that are killed and cut
// off, on a Redis that restarts.
package lockaround_test

import (
	"encoding/json"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/examples/stock/stocktest"
)

func TestMain(m *testing.M) {
	stocktest.Main()
	goleak.VerifyTestMain(m)
}

// lockTTL is how long the key of a process that is killed or cut off stays taken. The
// leases of the others outlast the test.
const lockTTL = 8 * time.Second

func TestFaultsOversellNothing(t *testing.T) {
	const (
		units = 500
		each  = 10 // buyers at each entrance while something goes wrong: too few to buy all
		rest  = 50 // buyers at each entrance who are too many for what is left
		long  = time.Hour
	)
	// Locks are lost when their Redis restarts; the stock is elsewhere, as stocks are.
	locks, stock := testservers.Redis(t), testservers.Redis(t)
	link := startProxy(t, locks.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: stock.Addr()})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Set(t.Context(), "units", units, 0).Err(); err != nil {
		t.Fatal(err)
	}
	start := func(number int, locks string, wait, ttl time.Duration) *stocktest.Process {
		return stocktest.Start(t, stocktest.Replica{Number: number, Locks: locks, Stock: stock.Addr(), Wait: wait, TTL: ttl})
	}
	killed := start(0, locks.Addr(), core.Forever, lockTTL)
	cutOff := start(1, link.Addr().String(), lockTTL/2, lockTTL)
	paused := start(2, locks.Addr(), core.Forever, long)
	calm := start(3, locks.Addr(), core.Forever, long)

	// Nothing goes wrong.
	a, b, c, d := killed.Send(t, each), cutOff.Send(t, each), paused.Send(t, each), calm.Send(t, each)
	a.Hear(t, "sold")
	b.Hear(t, "sold", "timeout", "unavailable")
	c.Hear(t, "sold")
	d.Hear(t, "sold")

	// A process dies that has read the stock and holds the lock. The others go on
	// after its TTL.
	killed.Order(t, "deaf")
	a = killed.Send(t, each)
	killed.Holding(t)
	b, c, d = cutOff.Send(t, each), paused.Send(t, each), calm.Send(t, each)
	killed.Kill()
	a.Hear(t, "sold", stocktest.NoAnswer)
	b.Hear(t, "sold", "timeout", "unavailable")
	c.Hear(t, "sold")
	d.Hear(t, "sold")

	// The locks' Redis loses a lock whose holder is paused, and grants it again:
	// there are two holders until the first one's next renewal. The stock refuses
	// what the first one writes after the second one, and its caller is told.
	paused.Order(t, "deaf")
	c = paused.Send(t, each)
	paused.Holding(t)
	b, d = cutOff.Send(t, each), calm.Send(t, each)
	locks.Restart()
	d.Hear(t, "sold")
	paused.Order(t, "resume")
	if got := c.Hear(t, "sold", "stale", "lost"); got["stale"] == 0 {
		t.Errorf("the stock took what a holder wrote after the next one; its callers were told %v", got)
	}
	b.Hear(t, "sold", "timeout", "unavailable")

	// A process is cut off from the locks' Redis while one of its callers holds
	// the lock and others wait for it. They are told; the others go on after the
	// TTL, and it does when the way is free again.
	cutOff.Order(t, "pause")
	b = cutOff.Send(t, each)
	cutOff.Holding(t)
	link.cut()
	c, d = paused.Send(t, each), calm.Send(t, each)
	if got := b.Hear(t, "lost", "timeout", "unavailable"); got["lost"] != 1 {
		t.Errorf("the callers of the process that was cut off were told %v; one of them held the lock", got)
	}
	cutOff.Send(t, 2).Hear(t, "unavailable")
	c.Hear(t, "sold")
	d.Hear(t, "sold")
	link.restore()
	for began := time.Now(); cutOff.Send(t, 1).Hear(t, "sold", "timeout", "unavailable")["sold"] == 0; {
		if time.Since(began) > stocktest.Patience {
			t.Fatal("the process that was cut off does not come back")
		}
	}

	b, c, d = cutOff.Send(t, rest), paused.Send(t, rest), calm.Send(t, rest)
	b.Hear(t, "sold", "sold out", "timeout", "unavailable")
	c.Hear(t, "sold", "sold out")
	d.Hear(t, "sold", "sold out")
	checkSales(t, rdb, units, killed, cutOff, paused, calm)
}

// checkSales takes the stock's own log for the truth: each unit sold once, in
// order, by holders in the order of their tokens, and to those who were told so.
func checkSales(t *testing.T, rdb *redis.Client, units int, replicas ...*stocktest.Process) {
	t.Helper()
	lines, err := rdb.LRange(t.Context(), "sales", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != units {
		t.Errorf("%d sales logged, want %d", len(lines), units)
	}
	made := make([]int, len(replicas))
	last := stocktest.Sale{Left: units}
	for i, line := range lines {
		var s stocktest.Sale
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatal(err)
		}
		if s.Left != last.Left-1 || s.Token <= last.Token {
			t.Fatalf("sale %d is %+v after %+v: two sales overlapped", i, s, last)
		}
		made[s.Replica]++
		last = s
	}
	for i, r := range replicas {
		t.Logf("replica %d made %d sales; its callers were told %v", i, made[i], r.Told)
		// Who lost the lock, or got no answer, cannot know.
		sold, unknown := r.Told["sold"], r.Told["lost"]+r.Told[stocktest.NoAnswer]
		if made[i] < sold || made[i] > sold+unknown {
			t.Errorf("replica %d told %d callers of a sale, and %d cannot know; the stock knows of %d", i, sold, unknown, made[i])
		}
	}
}

// proxy stands between a replica and the locks' Redis.
type proxy struct {
	net.Listener
	dark atomic.Bool // nothing gets through, in either direction
	mu   sync.Mutex
	open []net.Conn
	all  sync.WaitGroup
}

// startProxy starts a proxy that ends with the test, after its clients.
func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l}
	p.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close() // as the server would refuse
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, client, server)
			p.mu.Unlock()
			p.all.Go(func() { p.pass(client, server) })
			p.all.Go(func() { p.pass(server, client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.all.Wait()
	})
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	_, _ = io.Copy(hole{to, &p.dark}, from)
	_, _ = from.Close(), to.Close()
}

type hole struct {
	io.Writer
	dark *atomic.Bool
}

func (h hole) Write(b []byte) (int, error) {
	if h.dark.Load() {
		return len(b), nil
	}
	return h.Writer.Write(b)
}

// cut makes the proxy lose everything. Connections stay open.
func (p *proxy) cut() { p.dark.Store(true) }

// restore ends that, and the connections that have lost something.
func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close() // it may be closed
	}
	p.dark.Store(false)
}
