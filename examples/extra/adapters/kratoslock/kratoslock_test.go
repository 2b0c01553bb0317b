package kratoslock_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"

	kratos "github.com/go-kratos/kratos/v2/errors"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"github.com/go-kratos/kratos/v2/transport/http"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/kratoslock"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
)

const method = "/stock.v1.Stock/Deduct"

// deduct is the service.
type deduct func(context.Context, *stockpb.DeductRequest) (*stockpb.Receipt, error)

type service struct {
	stockpb.UnimplementedStockServer
	deduct
}

func (s service) Deduct(ctx context.Context, r *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	return s.deduct(ctx, r)
}

// shop is the service under one lock, by both transports.
type shop struct {
	store *memlock.Driver
	http  *http.Server
	addr  string // of gRPC
}

func open(t *testing.T, key string, d deduct) shop {
	t.Helper()
	s := shop{store: memlock.New()}
	locks, err := core.New(s.store, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	var o []interceptor.Option
	if strings.Contains(key, "{tenant}") {
		o = append(o, kratoslock.Header("tenant", "X-Tenant"))
	}
	around := kratoslock.Server(interceptor.Lock(locks, interceptor.Rules{method: {Key: key}}, o...))
	s.http = http.NewServer(http.Middleware(around), http.Timeout(0))
	// As protoc-gen-go-http writes it.
	s.http.Route("/").POST("/products/{sku}/deduct", func(ctx http.Context) error {
		var in stockpb.DeductRequest
		if err := errors.Join(ctx.Bind(&in), ctx.BindQuery(&in), ctx.BindVars(&in)); err != nil {
			return kratos.BadRequest("CODEC", "the request cannot be read")
		}
		http.SetOperation(ctx, method)
		out, err := ctx.Middleware(func(ctx context.Context, req any) (any, error) { return d(ctx, req.(*stockpb.DeductRequest)) })(ctx, &in)
		if err != nil {
			return err
		}
		return ctx.Result(200, out)
	})
	server := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"), kgrpc.Middleware(around), kgrpc.Timeout(0))
	stockpb.RegisterStockServer(server, service{deduct: d})
	at, err := server.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = at.Host
	served := make(chan error, 1)
	go func() { served <- server.Start(t.Context()) }()
	t.Cleanup(func() {
		err := errors.Join(server.Stop(context.Background()), locks.Close())
		if over := <-served; !errors.Is(over, grpc.ErrServerStopped) { // it was stopped before it served
			err = errors.Join(err, over)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// by calls the method by a transport, and returns the status and the reason.
func (s shop) by(t *testing.T, transport, sku string, header ...string) (code int, reason string) {
	t.Helper()
	if transport == "HTTP" {
		r := httptest.NewRequestWithContext(t.Context(), nethttp.MethodPost, "/products/"+sku+"/deduct", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		if sku == "" {
			r.URL.Path = "/products/ /deduct"
		}
		for _, v := range header {
			r.Header.Add("X-Tenant", v)
		}
		w := httptest.NewRecorder()
		s.http.ServeHTTP(w, r)
		var told struct{ Reason string }
		body, _ := io.ReadAll(w.Body)
		if err := json.Unmarshal(body, &told); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if (w.Code == nethttp.StatusConflict) != (w.Header().Get("Retry-After") != "") {
			t.Errorf("%d with Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		return w.Code, told.Reason
	}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := t.Context()
	for _, v := range header {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-tenant", v)
	}
	_, err = stockpb.NewStockClient(conn).Deduct(ctx, &stockpb.DeductRequest{Sku: sku})
	return int(status.Code(err)), kratos.Reason(err)
}

// each runs a test by each transport.
func each(t *testing.T, test func(t *testing.T, transport string)) {
	t.Helper()
	for _, transport := range []string{"HTTP", "gRPC"} {
		t.Run(transport, func(t *testing.T) { test(t, transport) })
	}
}

func TestOneCallForAProductExcludesAnotherByEitherTransport(t *testing.T) {
	each(t, func(t *testing.T, transport string) {
		inside, leave := make(chan struct{}), make(chan struct{})
		s := open(t, "stock:{sku}", func(ctx context.Context, r *stockpb.DeductRequest) (*stockpb.Receipt, error) {
			lease, ok := core.LeaseFrom(ctx)
			if !ok || lease.Key() != "stock:"+r.GetSku() {
				t.Errorf("the method runs under %q", lease.Key())
			}
			if r.GetSku() == "book" {
				inside <- struct{}{}
				<-leave
			}
			return &stockpb.Receipt{}, nil
		})
		first := make(chan int)
		go func() {
			code, _ := s.by(t, transport, "book")
			first <- code
		}()
		<-inside
		if code, reason := s.by(t, "HTTP", "book"); code != 409 || reason != "LOCK_BUSY" {
			t.Errorf("the same product by HTTP: %d, %s", code, reason)
		}
		if code, reason := s.by(t, "gRPC", "book"); code != int(codes.Aborted) || reason != "LOCK_BUSY" {
			t.Errorf("the same product by gRPC: %d, %s", code, reason)
		}
		if code, reason := s.by(t, transport, "pen"); code != 0 && code != 200 {
			t.Errorf("another product: %d, %s", code, reason)
		}
		leave <- struct{}{}
		if code := <-first; code != 0 && code != 200 {
			t.Errorf("the first: %d", code)
		}
	})
}

func TestFailuresAreToldByTheirCodes(t *testing.T) {
	soldOut := kratos.New(429, "SOLD_OUT", "sold out")
	for name, c := range map[string]struct {
		key    string
		header []string
		down   bool
		call   func(*memlock.Driver, context.Context) error
		reason string
		http   int
		grpc   codes.Code
	}{
		"a header that is missing": {key: "{tenant}", reason: "LOCK_KEY_INVALID", http: 400, grpc: codes.InvalidArgument},
		"a header that is given twice": {
			key: "{tenant}", header: []string{"1", "2"}, reason: "LOCK_KEY_INVALID", http: 400, grpc: codes.InvalidArgument,
		},
		"a store that is down": {key: "{sku}", down: true, reason: "LOCK_UNAVAILABLE", http: 503, grpc: codes.Unavailable},
		"a lost lock": {key: "{tenant}", header: []string{"7"}, reason: "LOCK_LOST", http: 500, grpc: codes.Internal, call: func(store *memlock.Driver, ctx context.Context) error {
			store.Expire("test/7")
			<-ctx.Done()
			return ctx.Err()
		}},
		"the method's own error": {key: "{sku}", reason: "SOLD_OUT", http: 429, grpc: codes.ResourceExhausted, call: func(*memlock.Driver, context.Context) error {
			return soldOut
		}},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, transport string) {
				var s shop
				s = open(t, c.key, func(ctx context.Context, _ *stockpb.DeductRequest) (*stockpb.Receipt, error) {
					if c.call == nil {
						t.Error("the method ran without a lock")
						return &stockpb.Receipt{}, nil
					}
					return nil, c.call(s.store, ctx)
				})
				if c.down {
					s.store.Fail(errors.New("down"))
					defer s.store.Heal()
				}
				want := c.http
				if transport == "gRPC" {
					want = int(c.grpc)
				}
				if code, reason := s.by(t, transport, "book", c.header...); code != want || reason != c.reason {
					t.Errorf("%d, %s; want %d, %s", code, reason, want, c.reason)
				}
			})
		})
	}
}

func TestOutsideOfAServerNothingRuns(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	around := kratoslock.Server(interceptor.Lock(locks, interceptor.Rules{method: {Key: "{sku}"}}))
	_, err = around(func(context.Context, any) (any, error) {
		t.Error("the method ran without a lock")
		return nil, nil
	})(t.Context(), &stockpb.DeductRequest{Sku: "book"})
	if kratos.Reason(err) != "LOCK_POLICY" {
		t.Errorf("%v; want LOCK_POLICY", err)
	}
}
