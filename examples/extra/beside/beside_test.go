package beside_test

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-contrib/timeout"
	"github.com/gin-gonic/gin"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"go.opentelemetry.io/contrib/instrumentation/github.com/gin-gonic/gin/otelgin"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	goleak.VerifyTestMain(m)
}

func TestACallThatTheSelectorRefusesNeverAsksForTheLock(t *testing.T) {
	s := open(t)
	lock := interceptor.Lock(s.locks, rules).UnaryServer()
	checked := selector.UnaryServerInterceptor(
		func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, status.Error(codes.Unauthenticated, "no token")
		},
		selector.MatchFunc(func(_ context.Context, call interceptors.CallMeta) bool { return call.FullMethod() == deduct }))
	s.hold(t)

	if code := call(t, grpc.ChainUnaryInterceptor(checked, lock)); code != codes.Unauthenticated {
		t.Errorf("the selector, then the lock: %v, want Unauthenticated", code)
	}
	// The other way round anybody may wait for the lock, and keep others waiting.
	if code := call(t, grpc.ChainUnaryInterceptor(lock, checked)); code != codes.Aborted {
		t.Errorf("the lock, then the selector: %v, want Aborted", code)
	}
}

func TestALockInsideOfASelectorIsNotTakenWhereThatDoesNotMatch(t *testing.T) {
	s := open(t)
	lock := interceptor.Lock(s.locks, rules)
	s.hold(t)

	if code := call(t, grpc.ChainUnaryInterceptor(lock.UnaryServer())); code != codes.Aborted {
		t.Errorf("the rules alone select: %v, want Aborted", code)
	}
	// The method was renamed, and the selector was not told.
	sells := selector.MatchFunc(func(_ context.Context, call interceptors.CallMeta) bool { return call.Method == "Sell" })
	if code := call(t, grpc.ChainUnaryInterceptor(selector.UnaryServerInterceptor(lock.UnaryServer(), sells))); code != codes.OK {
		t.Errorf("a selector around the lock: %v, want OK beside the holder", code)
	}
	server := grpc.NewServer()
	stockpb.RegisterStockServer(server, stock{})
	if err := lock.Validate(server); err != nil {
		t.Errorf("Validate knows of selectors: %v", err)
	}
}

func TestTheSpansOfALockAreBelowThatOfItsRequest(t *testing.T) {
	const request = "POST /products/:sku/deduct"
	t.Run("otelgin, then the lock", func(t *testing.T) {
		s := open(t)
		h := route(otelgin.Middleware("shop", otelgin.WithTracerProvider(s.locks.TracerProvider())), middleware.Lock(s.locks, policy), sell)
		expect(t, post(h), http.StatusOK)
		s.expectSpans(t, map[string]string{
			request: "", "lock acquire deduct": request, "lock hold deduct": request, "lock release deduct": request,
		})
	})
	t.Run("the lock, then otelgin", func(t *testing.T) {
		s := open(t)
		h := route(middleware.Lock(s.locks, policy), otelgin.Middleware("shop", otelgin.WithTracerProvider(s.locks.TracerProvider())), sell)
		expect(t, post(h), http.StatusOK)
		s.expectSpans(t, map[string]string{ // the wait is in a trace of its own
			"lock acquire deduct": "", "lock hold deduct": "", "lock release deduct": "", request: "lock hold deduct",
		})
		s.hold(t)
		s.spans.Reset()
		expect(t, post(h), http.StatusConflict)
		s.expectSpans(t, map[string]string{"lock acquire deduct": ""}) // and a request that is refused has no span
	})
}

func TestTheSpansOfALockAreBelowThatOfItsCall(t *testing.T) {
	const served = "stock.v1.Stock/Deduct"
	t.Run("otelgrpc's handler comes before all interceptors", func(t *testing.T) {
		s := open(t)
		code := call(t, grpc.ChainUnaryInterceptor(interceptor.Lock(s.locks, rules).UnaryServer()),
			grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(s.locks.TracerProvider()))))
		if code != codes.OK {
			t.Error(code)
		}
		s.expectSpans(t, map[string]string{
			served: "", "lock acquire deduct": served, "lock hold deduct": served, "lock release deduct": served,
		})
	})
	t.Run("an interceptor that begins a span after the lock", func(t *testing.T) {
		s := open(t)
		begin := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			ctx, span := s.locks.TracerProvider().Tracer("").Start(ctx, served)
			defer span.End()
			return handler(ctx, req)
		}
		if code := call(t, grpc.ChainUnaryInterceptor(interceptor.Lock(s.locks, rules).UnaryServer(), begin)); code != codes.OK {
			t.Error(code)
		}
		s.expectSpans(t, map[string]string{
			"lock acquire deduct": "", "lock hold deduct": "", "lock release deduct": "", served: "lock hold deduct",
		})
	})
	t.Run("an interceptor that goes on with a context of its own before the lock", func(t *testing.T) {
		s := open(t)
		bound := func(_ context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return handler(ctx, req)
		}
		code := call(t, grpc.ChainUnaryInterceptor(bound, interceptor.Lock(s.locks, rules).UnaryServer()),
			grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(s.locks.TracerProvider()))))
		if code != codes.OK {
			t.Error(code)
		}
		s.expectSpans(t, map[string]string{
			served: "", "lock acquire deduct": "", "lock hold deduct": "", "lock release deduct": "",
		})
	})
}

func TestAHandlerThatIsOutOfTimeKeepsItsLockUntilItReturns(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler func(*core.Engine, gin.HandlerFunc) http.Handler
		answers bool // while the handler still runs
	}{
		{"the lock, then gin-contrib/timeout", func(locks *core.Engine, h gin.HandlerFunc) http.Handler {
			return route(middleware.Lock(locks, policy), timeout.New(timeout.WithTimeout(time.Second)), h)
		}, false},
		{"http.TimeoutHandler around the router", func(locks *core.Engine, h gin.HandlerFunc) http.Handler {
			return http.TimeoutHandler(route(middleware.Lock(locks, policy), h), time.Second, "late")
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				late, leave := make(chan struct{}), make(chan struct{})
				h := c.handler(s.locks, func(c *gin.Context) {
					<-c.Request.Context().Done() // it heeds its context, and has something to put away
					late <- struct{}{}
					<-leave
				})
				first := make(chan *httptest.ResponseRecorder, 1)
				go func() { first <- post(h) }()
				<-late
				synctest.Wait()
				if answered := len(first) == 1; answered != c.answers {
					t.Errorf("answered while the handler runs: %t, want %t", answered, c.answers)
				}
				expect(t, post(h), http.StatusConflict) // the handler still runs
				close(leave)
				if w := <-first; w.Code < http.StatusBadRequest {
					t.Errorf("the first: %d, want an error", w.Code)
				}
				synctest.Wait() // the handler has returned
				s.hold(t)
			})
		})
	}
}

func TestTheAnswerOfAHandlerThatLostItsLockStaysWhole(t *testing.T) {
	limit := timeout.New(timeout.WithTimeout(time.Minute))
	answer := func(chain func(lock, sell gin.HandlerFunc) http.Handler) string {
		s := open(t)
		return post(chain(middleware.Lock(s.locks, policy), func(c *gin.Context) {
			sell(c)
			s.store.Expire("test/stock:book")
			<-c.Request.Context().Done()
		})).Body.String()
	}
	if body := answer(func(lock, sell gin.HandlerFunc) http.Handler { return route(lock, limit, sell) }); body != "sold" {
		t.Errorf("the lock, then the timeout: %q", body)
	}
	// The timeout's writer keeps what was written, and tells the lock that nothing was.
	body := answer(func(lock, sell gin.HandlerFunc) http.Handler { return route(limit, lock, sell) })
	if !strings.HasPrefix(body, "sold{") || !strings.Contains(body, "LOCK_LOST") {
		t.Errorf("the timeout, then the lock: %q, want both answers in one", body)
	}
}

const deduct = "/stock.v1.Stock/Deduct"

var (
	policy = core.Policy{Name: "deduct", Key: "stock:{path.sku}"}
	rules  = interceptor.Rules{deduct: {Name: "deduct", Key: "stock:{sku}"}}
)

// shop has locks, and the spans of these and of what is beside them.
type shop struct {
	locks *core.Engine
	store *memlock.Driver
	spans *tracetest.SpanRecorder
}

func open(t *testing.T) shop {
	t.Helper()
	s := shop{store: memlock.New(), spans: tracetest.NewSpanRecorder()}
	locks, err := core.New(s.store, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)),
		core.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	s.locks = locks
	return s
}

// expectSpans compares the spans that have ended: the name of each, and of the one that it is below.
func (s shop) expectSpans(t *testing.T, want map[string]string) {
	t.Helper()
	names, got := map[trace.SpanID]string{}, map[string]string{}
	for _, span := range s.spans.Ended() {
		names[span.SpanContext().SpanID()] = span.Name()
	}
	for _, span := range s.spans.Ended() {
		got[span.Name()] = names[span.Parent().SpanID()]
	}
	if !maps.Equal(got, want) {
		t.Errorf("spans and what they are below:\n%v\nwant\n%v", got, want)
	}
}

// hold takes the lock of the book for the rest of the test.
func (s shop) hold(t *testing.T) {
	t.Helper()
	lease, err := s.locks.Acquire(t.Context(), core.Policy{Key: "stock:book"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
}

func sell(c *gin.Context) { c.String(http.StatusOK, "sold") }

func route(chain ...gin.HandlerFunc) *gin.Engine {
	r := gin.New()
	r.ContextWithFallback = true
	r.POST("/products/:sku/deduct", chain...)
	return r
}

func post(h http.Handler) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/book/deduct", http.NoBody))
	return w
}

func expect(t *testing.T, w *httptest.ResponseRecorder, code int) {
	t.Helper()
	if w.Code != code {
		t.Errorf("%d %s, want %d", w.Code, w.Body, code)
	}
}

type stock struct {
	stockpb.UnimplementedStockServer
}

func (stock) Deduct(context.Context, *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	return &stockpb.Receipt{}, nil
}

// call calls Deduct for the book, at a server that it stops.
func call(t *testing.T, o ...grpc.ServerOption) codes.Code {
	t.Helper()
	server := grpc.NewServer(o...)
	stockpb.RegisterStockServer(server, stock{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	_, answer := stockpb.NewStockClient(conn).Deduct(t.Context(), &stockpb.DeductRequest{Sku: "book"})
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	server.GracefulStop() // ends the spans
	if err := <-served; err != nil {
		t.Error(err)
	}
	return status.Code(answer)
}
