// Package lockaround_test runs lockaround as it is deployed: several processes,
// one Redis, locks over HTTP and around functions at once, and kill -9.
package lockaround_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/middleware"
)

// The environment of a child process.
const (
	roleVar    = "LOCKAROUND_TEST_ROLE"
	redisVar   = "LOCKAROUND_TEST_REDIS"
	replicaVar = "LOCKAROUND_TEST_REPLICA"
	stuckVar   = "LOCKAROUND_TEST_STUCK_AT"
)

func TestMain(m *testing.M) {
	roles := map[string]func() error{"replica": replicaMain, "holder": holderMain}
	if role, ok := roles[os.Getenv(roleVar)]; ok {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, "child process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	namespace = "integration"
	sku       = "book"
	unitsKey  = "units"
	salesKey  = "sales"

	// crashTTL is how long the key of a killed process stays taken.
	crashTTL = 3 * time.Second
)

// sale is one line of the stock's own log, written with the number of units in
// one transaction.
type sale struct {
	Replica int
	Left    int
}

var errSoldOut = errors.New("sold out")

// seller deducts from the stock in Redis: read, then write.
type seller struct {
	rdb     *redis.Client
	replica int
	stuckAt int // the first sale with no more units than this never ends; 0 is none
}

type deduction struct{ SKU string }

func (s *seller) deduct(ctx context.Context, d deduction) (sale, error) {
	units, err := s.rdb.Get(ctx, unitsKey).Int()
	if err != nil {
		return sale{}, err
	}
	if units < 1 {
		return sale{}, errSoldOut
	}
	if units <= s.stuckAt {
		fmt.Println("stuck")
		select {}
	}
	made := sale{Replica: s.replica, Left: units - 1}
	line, err := json.Marshal(made)
	if err != nil {
		return sale{}, err
	}
	_, err = s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, unitsKey, made.Left, 0)
		p.RPush(ctx, salesKey, line)
		return nil
	})
	return made, err
}

// result is what a group of buyers got.
type result struct {
	Sold, Refused, Failed int
	Failure               string
}

func (r *result) count(err error) {
	switch {
	case err == nil:
		r.Sold++
	case errors.Is(err, errSoldOut):
		r.Refused++
	default:
		r.Failed++
		r.Failure = err.Error()
	}
}

// crowd has n buyers call buy at once.
func crowd(n int, buy func() error) result {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = buy() })
	}
	wg.Wait()
	var r result
	for _, err := range errs {
		r.count(err)
	}
	return r
}

const buyersPerEntrance = 40

// replicaMain is one replica of the stock service. It prints its URL; told
// "go" it sends its own buyers through WithLock and prints their result; it
// serves HTTP until its standard input ends.
func replicaMain() error {
	replica, err := strconv.Atoi(os.Getenv(replicaVar))
	if err != nil {
		return err
	}
	stuckAt, err := strconv.Atoi(os.Getenv(stuckVar))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(redisVar)})
	defer func() { _ = rdb.Close() }()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace(namespace))
	if err != nil {
		return err
	}
	s := &seller{rdb: rdb, replica: replica, stuckAt: stuckAt}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.ContextWithFallback = true
	router.POST("/products/:sku/deduct",
		middleware.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: core.Forever, TTL: crashTTL}),
		func(c *gin.Context) {
			made, err := s.deduct(c.Request.Context(), deduction{c.Param("sku")})
			switch {
			case errors.Is(err, errSoldOut):
				c.Status(http.StatusGone)
			case err != nil:
				c.String(http.StatusBadGateway, err.Error())
			default:
				c.JSON(http.StatusOK, made)
			}
		})
	deduct := decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever, TTL: crashTTL}, s.deduct)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: router, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()

	fmt.Println("http://" + l.Addr().String())
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	r := crowd(buyersPerEntrance, func() error {
		_, err := deduct(context.Background(), deduction{sku})
		return err
	})
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return errors.Join(err, server.Shutdown(context.Background()), locks.Close())
}

func TestAKilledReplicaCostsNoUnitAndStopsNobodyElse(t *testing.T) {
	const (
		replicas = 3
		units    = 150 // fewer than the buyers of two replicas
		victim   = 0
	)
	addr := startRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Set(t.Context(), unitsKey, units, 0).Err(); err != nil {
		t.Fatal(err)
	}

	var children [replicas]*child
	for i := range children {
		stuckAt := 0
		if i == victim {
			// Fewer sales than it has buyers by either entrance: however they
			// are spread, one of its own comes to hold the lock after them.
			stuckAt = units - buyersPerEntrance/2
		}
		children[i] = startChild(t, "replica", redisVar+"="+addr,
			replicaVar+"="+strconv.Itoa(i), stuckVar+"="+strconv.Itoa(stuckAt))
	}
	var urls [replicas]string
	for i, c := range children {
		urls[i] = c.line(t)
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			t.Fatal(err)
		}
	}
	var overHTTP [replicas]result
	var buyers sync.WaitGroup
	for i, url := range urls {
		buyers.Go(func() { overHTTP[i] = crowd(buyersPerEntrance, func() error { return buyOverHTTP(t.Context(), url) }) })
	}

	// The victim has read the stock and holds the lock. It dies so.
	if got := children[victim].line(t); got != "stuck" {
		t.Fatalf("the victim says %q; it should hold the lock, stuck", got)
	}
	children[victim].kill(t)

	sold := make([]int, replicas)
	for i, c := range children {
		if i == victim {
			continue
		}
		var r result
		if err := json.Unmarshal([]byte(c.line(t)), &r); err != nil {
			t.Fatal(err)
		}
		sold[i] = r.Sold
		if r.Failed > 0 {
			t.Errorf("replica %d: %d WithLock buyers without an answer: %s", i, r.Failed, r.Failure)
		}
	}
	buyers.Wait()
	for i, r := range overHTTP {
		sold[i] += r.Sold
		if i != victim && r.Failed > 0 {
			t.Errorf("replica %d: %d HTTP buyers without an answer: %s", i, r.Failed, r.Failure)
		}
	}

	// The stock's own log is the truth: each unit sold once, in order.
	logged := readSales(t, rdb)
	if len(logged) != units {
		t.Errorf("%d sales logged, want %d", len(logged), units)
	}
	made := make([]int, replicas)
	for i, s := range logged {
		if want := units - 1 - i; s.Left != want {
			t.Fatalf("sale %d left %d units, want %d: two sales overlapped", i, s.Left, want)
		}
		made[s.Replica]++
	}
	for i := range replicas {
		switch {
		case i == victim && sold[i] > made[i]:
			t.Errorf("the victim acknowledged %d sales, the stock knows %d", sold[i], made[i])
		case i != victim && sold[i] != made[i]:
			t.Errorf("replica %d acknowledged %d sales, the stock knows %d", i, sold[i], made[i])
		}
	}
	t.Logf("sales by replica: %v; replica %d was killed holding the lock", made, victim)
}

func readSales(t *testing.T, rdb *redis.Client) []sale {
	t.Helper()
	lines, err := rdb.LRange(t.Context(), salesKey, 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	sales := make([]sale, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &sales[i]); err != nil {
			t.Fatal(err)
		}
	}
	return sales
}

func buyOverHTTP(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/products/"+sku+"/deduct", http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusGone:
		return errSoldOut
	}
	return fmt.Errorf("%s: %s", resp.Status, body)
}

// TestTheStockExampleSellsItsStockOverProcesses runs the README's demonstration
// on several processes.
func TestTheStockExampleSellsItsStockOverProcesses(t *testing.T) {
	addr := startRedis(t)
	program := filepath.Join(t.TempDir(), "stock")
	if out, err := exec.Command("go", "build", "-o", program, "./examples/stock").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v: %s", err, out)
	}
	out, err := exec.Command(program, "-redis", addr, "-processes", "3", "-buyers", "300").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if figures, ok := strings.CutPrefix(line, "with locks"); ok {
			if f := strings.Fields(figures); f[0] != "100" || f[1] != "0" || f[2] != "200" {
				t.Errorf("sold %s, oversold %s, refused %s; want 100, 0 and 200:\n%s", f[0], f[1], f[2], out)
			}
			return
		}
	}
	t.Errorf("no figures with locks in:\n%s", out)
}

const (
	holderKey = "holder"
	holderTTL = time.Second
)

// holderMain takes the lock, says its token and holds until it is killed.
func holderMain() error {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(redisVar)})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace(namespace))
	if err != nil {
		return err
	}
	lease, err := locks.Acquire(context.Background(), core.Policy{Key: holderKey, TTL: holderTTL, Wait: core.Forever})
	if err != nil {
		return err
	}
	fmt.Println(lease.Token())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
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
	addr := startRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	watched := watchedDriver{Driver: redislock.New(rdb), waiting: make(chan struct{}, 1)}
	locks, err := core.New(watched, core.WithNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	}()

	bound := holderTTL + watched.Capabilities().Wake
	var longest time.Duration
	for done := 0; done < kills; {
		watched.drain()
		holder := startChild(t, "holder", redisVar+"="+addr)
		token, err := strconv.ParseInt(holder.line(t), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan succession, 1)
		go func() {
			lease, err := locks.Acquire(t.Context(), core.Policy{Key: holderKey, TTL: holderTTL, Wait: core.Forever})
			next <- succession{lease, err, time.Now()}
		}()

		var killed time.Time
		var got succession
		select {
		case <-watched.waiting:
			killed = time.Now()
			holder.kill(t)
			got = <-next
		case got = <-next:
			// This machine let the holder starve for a whole TTL. That it
			// was succeeded is right, but tells nothing about a kill.
			holder.kill(t)
		}
		if got.err != nil {
			t.Fatal(got.err)
		}
		if got.lease.Token() <= token {
			t.Errorf("kill %d: token %d after the killed holder's %d", done+1, got.lease.Token(), token)
		}
		if err := got.lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
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

// succession is the grant that follows a holder's death.
type succession struct {
	lease *core.Lease
	err   error
	at    time.Time
}

// watchedDriver tells when the store has put an Acquire into its queue.
type watchedDriver struct {
	driver.Driver
	waiting chan struct{}
}

func (d watchedDriver) Open(c driver.Config) (driver.Session, error) {
	c.Sink = watchedSink{c.Sink, d.waiting}
	return d.Driver.Open(c)
}

// drain forgets that an Acquire which has its grant once waited.
func (d watchedDriver) drain() {
	select {
	case <-d.waiting:
	default:
	}
}

type watchedSink struct {
	driver.Sink
	waiting chan struct{}
}

func (s watchedSink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	select {
	case s.waiting <- struct{}{}:
	default:
	}
}

// child is this test binary running in another role.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startChild starts a child that ends, killed if need be, with the test.
func startChild(t *testing.T, role string, env ...string) *child {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
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
	c := &child{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { c.end(t) })
	return c
}

// line is the next line that the child prints.
func (c *child) line(t *testing.T) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child process ended: %v", err)
	}
	return strings.TrimSpace(line)
}

// kill ends the child as kill -9 does.
func (c *child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.cmd.Wait() // reports the kill
	c.cmd = nil
}

func (c *child) end(t *testing.T) {
	if c.cmd == nil {
		return
	}
	_ = c.in.Close()
	if t.Failed() {
		_ = c.cmd.Process.Kill()
	}
	if err := c.cmd.Wait(); err != nil && !t.Failed() {
		t.Errorf("child process: %v", err)
	}
}

// startRedis starts a redis-server of the test's own and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatal("redis-server is not installed, and LOCKAROUND_REQUIRE_SERVERS=1 asks for it")
		}
		t.Skip("redis-server is not installed")
	}
	// Somebody may take a free port before the server does: then another one.
	for range 5 {
		if addr, ok := startRedisOn(t, program, freeAddr(t)); ok {
			return addr
		}
	}
	t.Fatal("redis-server did not start on any of 5 ports")
	return ""
}

func startRedisOn(t *testing.T, program, addr string) (string, bool) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")
	log, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			drained := make(chan struct{})
			go func() { defer close(drained); _, _ = io.Copy(io.Discard, log) }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-drained
				_ = cmd.Wait() // killed, which Wait reports
			})
			return addr, true
		}
	}
	_ = cmd.Wait() // it ended by itself: the port was taken
	return "", false
}

// freeAddr returns a loopback address that nobody listened on a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
