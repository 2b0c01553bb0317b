// Package lockaround_test runs lockaround as it is deployed: locks over HTTP,
// over gRPC and around functions at once, in processes that are killed and cut
// off, on a Redis that restarts.
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
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
)

// replicaVar makes this test binary a replica of the stock service: its value is
// the replica's config as JSON.
const replicaVar = "LOCKAROUND_TEST_REPLICA"

type config struct {
	Replica      int           // its number
	Locks, Stock string        // addresses of two Redis servers
	Wait, TTL    time.Duration // of its policies
}

func TestMain(m *testing.M) {
	if text := os.Getenv(replicaVar); text != "" {
		if err := replicaMain(text); err != nil {
			fmt.Fprintln(os.Stderr, "replica:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

const (
	sku = "sku-4711"

	// lockTTL is how long the key of a process that is killed or cut off stays taken. The
	// leases of the others outlast the test.
	lockTTL = 8 * time.Second

	// patience is when a call counts as hung: what goes wrong here keeps one
	// waiting for lockTTL and a second or two.
	patience = 2 * time.Minute
)

var (
	errSoldOut = errors.New("sold out")
	errStale   = errors.New("a later holder of the lock was here before")
)

// answer is what a buyer may be told, by each entrance.
type answer struct {
	word   string
	err    error
	http   int
	grpc   codes.Code
	reason string // and code of the HTTP problem; empty if the stock answers and not the lock
}

var answers = []answer{
	{"sold", nil, 200, codes.OK, ""},
	{"sold out", errSoldOut, 410, codes.ResourceExhausted, ""},
	{"stale", errStale, 412, codes.FailedPrecondition, ""},
	{"lost", core.ErrLost, 500, codes.Aborted, "LOCK_LOST"},
	{"timeout", core.ErrTimeout, 409, codes.Aborted, "LOCK_TIMEOUT"},
	{"unavailable", core.ErrUnavailable, 503, codes.Unavailable, "LOCK_UNAVAILABLE"},
}

// answerTo is the answer that matches, or one whose word is text.
func answerTo(text string, matches func(answer) bool) answer {
	if i := slices.IndexFunc(answers, matches); i >= 0 {
		return answers[i]
	}
	return answer{word: text, http: http.StatusBadGateway, grpc: codes.Unknown}
}

func answerToError(err error) answer {
	return answerTo(fmt.Sprint(err), func(a answer) bool { return a.err == err || a.err != nil && errors.Is(err, a.err) })
}

// deduction is what is bought, and sale is what is made of it: a line of the
// stock's own log.
type (
	deduction struct{ SKU string }
	sale      struct {
		Replica int
		Left    int
		Token   int64 `json:",string"`
	}
	seller func(context.Context, deduction) (sale, error)
)

// service is the stock's entrances, each with a lock around the same function.
type service struct {
	stockpb.UnimplementedStockServer
	sell      seller
	url, grpc string
	stop      func() error
}

// serve opens the entrances. The function is behind a route that has no lock.
func serve(locks *core.Engine, wait, ttl time.Duration, sell seller) (*service, error) {
	policy := func(key string) core.Policy { return core.Policy{Key: key, Wait: wait, TTL: ttl} }
	table, err := middleware.NewTable(locks, middleware.Rules{"POST /products/:sku/deduct": policy("stock:{path.sku}")})
	if err != nil {
		return nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.ContextWithFallback = true
	router.Use(table.Handler())
	router.POST("/products/:sku/deduct", func(c *gin.Context) {
		_, err := sell(c.Request.Context(), deduction{c.Param("sku")})
		if a := answerToError(err); a.reason == "" {
			c.JSON(a.http, a.word)
		}
	})
	locked := decorator.WithLock(locks, policy("stock:{SKU}"), sell)
	router.POST("/function/:sku", func(c *gin.Context) {
		_, err := locked(c.Request.Context(), deduction{c.Param("sku")})
		a := answerToError(err)
		c.JSON(a.http, gin.H{"code": a.reason, "detail": a.word})
	})

	rules := interceptor.New(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: policy("stock:{sku}")})
	rpc := grpc.NewServer(grpc.ChainUnaryInterceptor(rules.UnaryServer()))
	s := &service{sell: sell}
	stockpb.RegisterStockServer(rpc, s)
	if err := errors.Join(table.Validate(router.Routes()), rules.Validate(rpc)); err != nil {
		return nil, err
	}

	web := &http.Server{Handler: router, ReadHeaderTimeout: time.Minute}
	var addrs [2]string
	var serving sync.WaitGroup
	for i, serve := range []func(net.Listener) error{web.Serve, rpc.Serve} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		addrs[i] = l.Addr().String()
		serving.Go(func() { _ = serve(l) }) // returns when it is stopped
	}
	s.url, s.grpc = "http://"+addrs[0], addrs[1]
	s.stop = func() error {
		rpc.GracefulStop()
		err := web.Shutdown(context.Background())
		serving.Wait()
		return err
	}
	return s, nil
}

// Deduct is the guarded call behind gRPC.
func (s *service) Deduct(ctx context.Context, r *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	made, err := s.sell(ctx, deduction{r.GetSku()})
	if a := answerToError(err); a.reason == "" {
		return &stockpb.Receipt{Left: int64(made.Left), Token: made.Token}, status.Error(a.grpc, a.word)
	}
	return nil, ctx.Err()
}

// entrances let one buyer in, who is told a word.
var entrances = []func(context.Context, *service) string{
	func(ctx context.Context, s *service) string { return post(ctx, s.url+"/products/"+sku+"/deduct") },
	func(ctx context.Context, s *service) string { return post(ctx, s.url+"/function/"+sku) },
	func(ctx context.Context, s *service) string { return deduct(ctx, s.grpc) },
}

// noAnswer is the word for a call that ended otherwise.
const noAnswer = "no answer"

func post(ctx context.Context, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return noAnswer
	}
	defer func() { _ = resp.Body.Close() }()
	var problem struct{ Code, Detail string }
	_ = json.NewDecoder(resp.Body).Decode(&problem) // what the stock says itself is no problem
	return answerTo(fmt.Sprint(resp.Status, problem), func(a answer) bool {
		return a.http == resp.StatusCode && a.reason == problem.Code
	}).word
}

func deduct(ctx context.Context, addr string) string {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = conn.Close() }()
	_, err = stockpb.NewStockClient(conn).Deduct(ctx, &stockpb.DeductRequest{Sku: sku})
	st, reason := status.Convert(err), ""
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if st.Code() == codes.Unavailable && reason == "" {
		return noAnswer // the lock would say why
	}
	return answerTo(fmt.Sprint(err, reason), func(a answer) bool { return a.grpc == st.Code() && a.reason == reason }).word
}

// fenced reads the number of units, or sets it and logs the sale. It refuses
// tokens below the largest that it has seen, of readers too: what an older
// holder writes after a later one has read would be sold twice. Tokens are
// compared as text, since Lua rounds large numbers.
var fenced = redis.NewScript(`
local seen = redis.call('GET', KEYS[1]) or ''
if #ARGV[1] < #seen or #ARGV[1] == #seen and ARGV[1] < seen then return -1 end
redis.call('SET', KEYS[1], ARGV[1])
if ARGV[2] then
	redis.call('SET', KEYS[2], ARGV[2])
	redis.call('RPUSH', KEYS[3], ARGV[3])
end
return tonumber(redis.call('GET', KEYS[2]))`)

// stock is what a replica sells from.
type stock struct {
	rdb     *redis.Client
	replica int

	// pause has the next sale print "holding" and wait for resume: if it is
	// true, deaf to the end of its lock, as a process that gets no processor.
	pause, resume chan bool
}

func (s *stock) ask(ctx context.Context, token int64, more ...any) (units int, err error) {
	keys, args := []string{"token", "units", "sales"}, append([]any{token}, more...)
	// Not cancelled with the lock: what the stock answers is the truth.
	units, err = fenced.Run(context.WithoutCancel(ctx), s.rdb, keys, args...).Int()
	if err == nil && units < 0 {
		err = errStale
	}
	return units, err
}

// sell reads the number of units and writes one less, in two requests.
func (s *stock) sell(ctx context.Context, _ deduction) (sale, error) {
	lease, ok := core.LeaseFrom(ctx)
	if !ok {
		return sale{}, core.ErrLost
	}
	units, err := s.ask(ctx, lease.Token())
	switch {
	case err != nil:
		return sale{}, err
	case units < 1:
		return sale{}, errSoldOut
	}
	select {
	case deaf := <-s.pause:
		fmt.Println("holding")
		lost := ctx.Done()
		if deaf {
			lost = nil
		}
		select {
		case <-s.resume:
		case <-lost:
			return sale{}, context.Cause(ctx)
		}
	default:
	}
	made := sale{Replica: s.replica, Left: units - 1, Token: lease.Token()}
	line, _ := json.Marshal(made) // numbers do not fail
	_, err = s.ask(ctx, made.Token, made.Left, line)
	return made, err
}

// replicaMain is one replica of the stock service. It prints where it serves, and
// takes the orders "pause", "deaf" and "resume" until its standard input ends. It
// prints "noted" when one is in force.
func replicaMain(text string) error {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	// A store that is slow since the machine is busy is not out of reach.
	rdb := redis.NewClient(&redis.Options{Addr: c.Locks, ReadTimeout: patience})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("integration"), core.WithStoreTimeout(patience))
	if err != nil {
		return err
	}
	// A sale must not be sent twice.
	rdbStock := redis.NewClient(&redis.Options{Addr: c.Stock, MaxRetries: -1, ReadTimeout: patience})
	st := &stock{rdb: rdbStock, replica: c.Replica, pause: make(chan bool, 1), resume: make(chan bool)}
	s, err := serve(locks, c.Wait, c.TTL, st.sell)
	if err != nil {
		return err
	}
	fmt.Println(s.url, s.grpc)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if order := in.Text(); order == "resume" {
			st.resume <- true
		} else {
			st.pause <- order == "deaf"
		}
		fmt.Println("noted")
	}
	return errors.Join(s.stop(), locks.Close(), rdb.Close(), rdbStock.Close())
}

// replica is a replica as the test sees it.
type replica struct {
	service
	config
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	told map[string]int // what its callers were told so far
}

// startReplica starts a replica that ends with the test.
func startReplica(t *testing.T, c config) *replica {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(c) // strings and numbers do not fail
	// The time ends what would wait for a line for ever.
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience)
	r := &replica{config: c, cmd: exec.CommandContext(ctx, program), told: map[string]int{}}
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), replicaVar+"="+string(text)), os.Stderr
	in, inErr := r.cmd.StdinPipe()
	out, outErr := r.cmd.StdoutPipe()
	r.in, r.out = in, bufio.NewReader(out)
	if err := errors.Join(inErr, outErr, r.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer cancel()
		_ = r.in.Close()
		if t.Failed() {
			cancel()
		}
		if r.cmd.ProcessState != nil {
			return // the test has killed it
		}
		if err := r.cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("replica %d: %v", r.Replica, err)
		}
	})
	if _, err := fmt.Fscanln(r.out, &r.url, &r.grpc); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) order(t *testing.T, word string) {
	t.Helper()
	if _, err := fmt.Fprintln(r.in, word); err != nil {
		t.Fatal(err)
	}
	r.says(t, "noted")
}

// holding returns when a sale that was to pause has the lock.
func (r *replica) holding(t *testing.T) {
	t.Helper()
	r.says(t, "holding")
}

func (r *replica) says(t *testing.T, want string) {
	t.Helper()
	if got, err := r.out.ReadString('\n'); got != want+"\n" {
		t.Fatalf("replica %d says %q, %v; want %q", r.Replica, got, err, want)
	}
}

// crowd is the buyers that were sent to a replica at once.
type crowd struct {
	*replica
	words []string
	all   sync.WaitGroup
}

// send sends n buyers to each of the replica's entrances.
func (r *replica) send(t *testing.T, n int) *crowd {
	c := &crowd{replica: r, words: make([]string, n*len(entrances))}
	for i := range c.words {
		c.all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			c.words[i] = entrances[i%len(entrances)](ctx, &c.service)
		})
	}
	return c
}

// are waits for all answers, which have to be of these words, and counts them.
func (c *crowd) are(t *testing.T, words ...string) map[string]int {
	t.Helper()
	c.all.Wait()
	got := map[string]int{}
	for _, word := range c.words {
		got[word]++
		c.told[word]++
		if !slices.Contains(words, word) {
			t.Errorf("replica %d told a caller %q, want one of %q", c.Replica, word, words)
		}
	}
	return got
}

func TestFaultsOversellNothing(t *testing.T) {
	const (
		units = 500
		each  = 10 // buyers at each entrance while something goes wrong: too few to buy all
		rest  = 50 // buyers at each entrance who are too many for what is left
		long  = time.Hour
	)
	// Locks are lost when their Redis restarts; the stock is elsewhere, as stocks are.
	locks, stock := startRedis(t), startRedis(t)
	link := startProxy(t, locks.addr)
	rdb := redis.NewClient(&redis.Options{Addr: stock.addr})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Set(t.Context(), "units", units, 0).Err(); err != nil {
		t.Fatal(err)
	}
	killed := startReplica(t, config{0, locks.addr, stock.addr, core.Forever, lockTTL})
	cutOff := startReplica(t, config{1, link.Addr().String(), stock.addr, lockTTL / 2, lockTTL})
	paused := startReplica(t, config{2, locks.addr, stock.addr, core.Forever, long})
	calm := startReplica(t, config{3, locks.addr, stock.addr, core.Forever, long})

	// Nothing goes wrong.
	a, b, c, d := killed.send(t, each), cutOff.send(t, each), paused.send(t, each), calm.send(t, each)
	a.are(t, "sold")
	b.are(t, "sold", "timeout", "unavailable")
	c.are(t, "sold")
	d.are(t, "sold")

	// A process dies that has read the stock and holds the lock. The others go on
	// after its TTL.
	killed.order(t, "deaf")
	a = killed.send(t, each)
	killed.holding(t)
	b, c, d = cutOff.send(t, each), paused.send(t, each), calm.send(t, each)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.cmd.Wait() // reports the kill
	a.are(t, "sold", noAnswer)
	b.are(t, "sold", "timeout", "unavailable")
	c.are(t, "sold")
	d.are(t, "sold")

	// The locks' Redis loses a lock whose holder is paused, and grants it again:
	// there are two holders until the first one's next renewal. The stock refuses
	// what the first one writes after the second one, and its caller is told.
	paused.order(t, "deaf")
	c = paused.send(t, each)
	paused.holding(t)
	b, d = cutOff.send(t, each), calm.send(t, each)
	locks.kill()
	locks.run(t)
	d.are(t, "sold")
	paused.order(t, "resume")
	if got := c.are(t, "sold", "stale", "lost"); got["stale"] == 0 {
		t.Errorf("the stock took what a holder wrote after the next one; its callers were told %v", got)
	}
	b.are(t, "sold", "timeout", "unavailable")

	// A process is cut off from the locks' Redis while one of its callers holds
	// the lock and others wait for it. They are told; the others go on after the
	// TTL, and it does when the way is free again.
	cutOff.order(t, "pause")
	b = cutOff.send(t, each)
	cutOff.holding(t)
	link.cut()
	c, d = paused.send(t, each), calm.send(t, each)
	if got := b.are(t, "lost", "timeout", "unavailable"); got["lost"] != 1 {
		t.Errorf("the callers of the process that was cut off were told %v; one of them held the lock", got)
	}
	cutOff.send(t, 2).are(t, "unavailable")
	c.are(t, "sold")
	d.are(t, "sold")
	link.restore()
	for began := time.Now(); cutOff.send(t, 1).are(t, "sold", "timeout", "unavailable")["sold"] == 0; {
		if time.Since(began) > patience {
			t.Fatal("the process that was cut off does not come back")
		}
	}

	b, c, d = cutOff.send(t, rest), paused.send(t, rest), calm.send(t, rest)
	b.are(t, "sold", "sold out", "timeout", "unavailable")
	c.are(t, "sold", "sold out")
	d.are(t, "sold", "sold out")
	checkSales(t, rdb, units, killed, cutOff, paused, calm)
}

// checkSales takes the stock's own log for the truth: each unit sold once, in
// order, by holders in the order of their tokens, and to those who were told so.
func checkSales(t *testing.T, rdb *redis.Client, units int, replicas ...*replica) {
	t.Helper()
	lines, err := rdb.LRange(t.Context(), "sales", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != units {
		t.Errorf("%d sales logged, want %d", len(lines), units)
	}
	made := make([]int, len(replicas))
	last := sale{Left: units}
	for i, line := range lines {
		var s sale
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
		t.Logf("replica %d made %d sales; its callers were told %v", i, made[i], r.told)
		// Who lost the lock, or got no answer, cannot know.
		sold, unknown := r.told["sold"], r.told["lost"]+r.told[noAnswer]
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
func startProxy(t *testing.T, socket string) *proxy {
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
			server, err := net.Dial("unix", socket)
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

// server is a redis-server without persistence, on a Unix socket, whose address
// nobody else takes between two runs. It ends with the test.
type server struct {
	addr string
	cmd  *exec.Cmd
	log  chan struct{} // closed when the server is gone
}

func startRedis(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	s := &server{addr: filepath.Join(t.TempDir(), "redis")}
	s.run(t)
	t.Cleanup(s.kill)
	return s
}

// run starts the server and returns when it serves.
func (s *server) run(t *testing.T) {
	t.Helper()
	s.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", s.addr, "--dir", filepath.Dir(s.addr), "--save", "", "--appendonly", "no")
	out, err := s.cmd.StdoutPipe()
	if err := errors.Join(err, s.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
	}
	s.log = make(chan struct{})
	go func() {
		defer close(s.log)
		_, _ = io.Copy(io.Discard, out)
	}()
	if err := lines.Err(); err != nil || lines.Text() == "" {
		t.Fatalf("redis-server ended at once: %v", err)
	}
}

// kill ends the server as kill -9 does, and with it all that it kept.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	<-s.log
	_ = s.cmd.Wait() // reports the kill
}
