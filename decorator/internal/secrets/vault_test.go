package secrets_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

const (
	secretSKU      = "sku-4711" // a part of every key
	secretPassword = "pa55word-of-the-locks"
)

// deduction is what a call is asked for.
type deduction struct{ SKU string }

// receipt is what it returns.
type receipt struct{}

// A pool of go-redis's looks for a server that is gone once a second, until it is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// gossip is what all observers have been told, by observer.
type gossip struct {
	mu   sync.Mutex
	text map[string]*strings.Builder
}

func (o *gossip) tell(observer, format string, a ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text[observer] == nil {
		o.text[observer] = new(strings.Builder)
	}
	fmt.Fprintf(o.text[observer], format+"\n", a...)
}

// vault is a Redis with a password, and who looks at what is done with it.
type vault struct {
	*testing.T
	gossip
	addr    string
	admin   *redis.Client
	spans   *tracetest.InMemoryExporter
	metrics *metric.ManualReader
	logs    bytes.Buffer
	options []core.Option

	mu     sync.Mutex
	owners []string // of leases that were held
	hidden []string // what errors have for whoever unwraps them
}

func newVault(t *testing.T) *vault {
	v := &vault{T: t, addr: testservers.Redis(t).Addr(), spans: tracetest.NewInMemoryExporter(), metrics: metric.NewManualReader()}
	v.text = make(map[string]*strings.Builder)
	v.admin = redis.NewClient(&redis.Options{Addr: v.addr})
	t.Cleanup(func() { _ = v.admin.Close() })
	for _, words := range []string{
		"ACL SETUSER locks on >" + secretPassword + " ~* &* +@all",
		"ACL SETUSER guest on >" + secretPassword + " ~* &* +hello +auth +ping +client",
	} {
		var args []any
		for _, w := range strings.Fields(words) {
			args = append(args, w)
		}
		if err := v.admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	logger := slog.New(slog.NewJSONHandler(&v.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	before := slog.Default()
	slog.SetDefault(logger)
	t.Cleanup(func() { slog.SetDefault(before) })
	v.options = []core.Option{
		core.WithNamespace("shop"), core.WithLogger(logger), core.WithForceRelease(),
		core.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(v.spans))),
		core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(v.metrics))),
	}
	return v
}

// client is one of a user's, as his configuration has it: a URL with the password in it.
func (v *vault) client(user, password string) *redis.Client {
	v.Helper()
	// A client that has failed to connect as often as its pool is large looks for the
	// server every second, and only then notices that it was closed.
	o, err := redis.ParseURL("redis://" + user + ":" + password + "@" + v.addr + "?pool_size=10000&read_timeout=2m")
	if err != nil {
		v.Fatal(err)
	}
	rdb := redis.NewClient(o)
	v.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (v *vault) engine(rdb *redis.Client, o ...core.Option) *core.Engine {
	v.Helper()
	e, err := core.New(redislock.New(rdb), append(o, v.options...)...)
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(func() { _ = e.Close() })
	return e
}

// failed is what a caller sees of an error, and what the lock's refusal was.
func (v *vault) failed(err error) (reason string) { return v.failedFor("callers", err) }

// failedFor is failed for other observers than callers.
func (v *vault) failedFor(observer string, err error) (reason string) {
	if err == nil {
		return ""
	}
	v.tell(observer, "%v %+v %q", err, err, err)
	var causes func(error)
	causes = func(err error) {
		if err == nil {
			return
		}
		switch err := err.(type) { //nolint:errorlint // the tree is walked here
		case interface{ Unwrap() []error }:
			for _, e := range err.Unwrap() {
				causes(e)
			}
		case interface{ Unwrap() error }:
			causes(err.Unwrap())
			v.mu.Lock()
			v.hidden = append(v.hidden, err.(error).Error())
			v.mu.Unlock()
		default:
			v.mu.Lock()
			v.hidden = append(v.hidden, err.Error())
			v.mu.Unlock()
		}
	}
	causes(err)
	for kind, reason := range map[error]string{
		core.ErrBusy: "LOCK_BUSY", core.ErrLost: "LOCK_LOST", core.ErrUnavailable: "LOCK_UNAVAILABLE", cache.ErrUnavailable: "LOCK_UNAVAILABLE",
	} {
		if errors.Is(err, kind) {
			return reason
		}
	}
	return err.Error()
}

// entrance is a surface: its locks' keys begin with its name.
type entrance struct {
	name  string
	enter func() (reason string)
}

// entrances puts locks of an engine around call on every surface.
func (v *vault) entrances(e *core.Engine, rdb *redis.Client, ttl time.Duration, call func(context.Context) error) []entrance {
	v.Helper()
	policy := func(key string) core.Policy { return core.Policy{Key: key, TTL: ttl} }
	send := func(url string) string {
		resp, err := http.Post(url, "", http.NoBody)
		if err != nil {
			return v.failed(err)
		}
		defer func() { _ = resp.Body.Close() }()
		dump, err := httputil.DumpResponse(resp, true)
		if err != nil {
			v.Error(err)
		}
		v.tell("http", "%s%v", dump, resp.Trailer)
		var problem struct{ Code string }
		_ = json.NewDecoder(resp.Body).Decode(&problem) // success has none
		return problem.Code
	}
	serve := func(h http.Handler) string {
		s := httptest.NewServer(h)
		v.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); s.Close() })
		return s.URL
	}

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST("/products/:sku", middleware.Lock(e, policy("gin:{path.sku}")), func(c *gin.Context) { _ = call(c.Request.Context()) })
	ginURL := serve(router)
	plainURL := serve(httplock.Lock(e, policy("http:{query.sku}"))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = call(r.Context()) })))

	answer := func(err error, md ...metadata.MD) string {
		s := status.Convert(err)
		v.tell("grpc", "%v %v %v %v", err, s.Proto(), s.Details(), md)
		for _, d := range s.Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok {
				return info.GetReason()
			}
		}
		return v.failed(err)
	}
	deduct := func(addr string, o ...grpc.DialOption) string {
		conn, err := grpc.NewClient(addr, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			v.Error(err)
			return ""
		}
		defer func() { _ = conn.Close() }()
		var header, trailer metadata.MD
		_, err = stockpb.NewStockClient(conn).Deduct(context.Background(), &stockpb.DeductRequest{Sku: secretSKU}, grpc.Header(&header), grpc.Trailer(&trailer))
		return answer(err, header, trailer)
	}
	rules := func(key string) interceptor.Rules {
		return interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: policy(key)}
	}
	locked := v.stock(func(ctx context.Context) error { _ = call(ctx); return ctx.Err() }, grpc.ChainUnaryInterceptor(interceptor.Lock(e, rules("server:{sku}")).UnaryServer()))
	open := v.stock(func(ctx context.Context) error { _ = call(ctx); return nil })
	client := interceptor.Lock(e, rules("client:{sku}")).UnaryClient()
	stream := interceptor.Lock(e, rules("stream:{sku}")).StreamServer()

	function := decorator.WithLockErr(e, policy("function:{SKU}"), func(ctx context.Context, _ deduction) error { return call(ctx) })
	other := decorator.WithLock(e, policy("result:{SKU}"), func(ctx context.Context, _ deduction) (receipt, error) { return receipt{}, call(ctx) })
	load := func(ctx context.Context, sku string) (string, error) { return sku, call(ctx) }
	kept := cache.Policy{Expiry: time.Minute}
	memory := cache.NewMemory(cache.Limits{Entries: 10})
	cached := cache.Must(e, policy("cached:{.}"), memory, load, kept)
	v.Cleanup(cached.Close)
	entries, err := rediscache.New(rdb, "cache")
	if err != nil {
		v.Fatal(err)
	}
	far := cache.Must(e, policy("far:{.}"), entries, load, kept)
	v.Cleanup(far.Close)
	job := job.Must(e, core.Policy{Key: "job:" + secretSKU, Name: "job", TTL: ttl}, call, job.Schedule{Every: time.Minute})

	return []entrance{
		{"gin:", func() string { return send(ginURL + "/products/" + secretSKU) }},
		{"http:", func() string { return send(plainURL + "/?sku=" + secretSKU) }},
		{"server:", func() string { return deduct(locked) }},
		{"client:", func() string { return deduct(open, grpc.WithChainUnaryInterceptor(client)) }},
		{"stream:", func() string {
			return answer(stream(nil, &secretStream{}, &grpc.StreamServerInfo{FullMethod: stockpb.Stock_Deduct_FullMethodName}, func(_ any, s grpc.ServerStream) error {
				_ = call(s.Context())
				return s.Context().Err()
			}))
		}},
		{"function:", func() string { return v.failed(function(context.Background(), deduction{SKU: secretSKU})) }},
		{"result:", func() string { _, err := other(context.Background(), deduction{SKU: secretSKU}); return v.failed(err) }},
		{"cached:", func() string { _, err := cached.Get(context.Background(), secretSKU); return v.failed(err) }},
		{"far:", func() string { _, err := far.Get(context.Background(), secretSKU); return v.failed(err) }},
		{"job:", func() string { return v.failed(job.Run(context.Background())) }},
		{"hand:", func() string {
			p := policy("hand:" + secretSKU)
			return v.failed(e.Do(context.Background(), p, call))
		}},
	}
}

// stock serves the stock over gRPC.
func (v *vault) stock(call func(context.Context) error, o ...grpc.ServerOption) (addr string) {
	v.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		v.Fatal(err)
	}
	s := grpc.NewServer(o...)
	stockpb.RegisterStockServer(s, secretStock{call: call})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	v.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			v.Error(err)
		}
	})
	return l.Addr().String()
}

type secretStock struct {
	stockpb.UnimplementedStockServer
	call func(context.Context) error
}

func (s secretStock) Deduct(ctx context.Context, _ *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	return &stockpb.Receipt{}, s.call(ctx)
}

// secretStream is a stream of which the one message has been sent.
type secretStream struct{ grpc.ServerStream }

func (*secretStream) Context() context.Context { return context.Background() }

func (*secretStream) SetTrailer(metadata.MD) {}

func (*secretStream) RecvMsg(m any) error {
	proto.Merge(m.(proto.Message), &stockpb.DeductRequest{Sku: secretSKU})
	return nil
}

// watch notes the owners that the server knows.
func (v *vault) watch(ctx context.Context) error {
	keys, err := v.admin.Keys(ctx, redislock.KeyPrefix+"*").Result()
	for _, key := range keys {
		owner := v.admin.Get(ctx, key).Val()
		if owner == "" { // others wait for it
			owner = v.admin.HGet(ctx, key, "s").Val()
		}
		if len(owner) >= 16 {
			v.mu.Lock()
			v.owners = append(v.owners, owner[:16])
			v.mu.Unlock()
		}
	}
	return err
}
