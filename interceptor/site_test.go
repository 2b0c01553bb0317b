package interceptor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what tests expect to be logged, they read themselves
	goleak.VerifyTestMain(m)
}

const (
	buy    = "/lockaround.test.v1.Shop/Buy"
	watch  = "/lockaround.test.v1.Shop/Watch"
	upload = "/lockaround.test.v1.Shop/Upload"
	chat   = "/lockaround.test.v1.Shop/Chat"
)

// watchedDriver tells when the store has put an Acquire into its queue.
type watchedDriver struct {
	driver.Driver
	queued chan string
}

func (d watchedDriver) Open(c driver.Config) (driver.Session, error) {
	c.Sink = watchedSink{c.Sink, d.queued}
	return d.Driver.Open(c)
}

type watchedSink struct {
	driver.Sink
	queued chan string
}

func (s watchedSink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	s.queued <- id.Key
}

// store is a lock store with two processes on it: the one under test, and a rival.
type store struct {
	*memlock.Driver
	locks  *core.Engine
	rival  *core.Engine
	queued chan string // keys that locks waits for in the store
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{Driver: memlock.New(), queued: make(chan string, 100)}
	open := func(d driver.Driver) *core.Engine {
		e, err := core.New(d, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithStoreTimeout(2*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	s.locks, s.rival = open(watchedDriver{s.Driver, s.queued}), open(s.Driver)
	return s
}

// hold has the rival hold a key until the test gives it back.
func (s *store) hold(t testing.TB, key string) (giveBack func()) {
	t.Helper()
	lease, err := s.rival.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := lease.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// mustBeFree fails unless the rival gets the key, at once or when the store has
// ended a request that was given up, long before its lease would end.
func (s *store) mustBeFree(t testing.TB, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), core.DefaultTTL*2/3)
	defer cancel()
	if err := s.rival.Do(ctx, core.Policy{Key: key, Wait: core.Forever}, func(context.Context) error { return nil }); err != nil {
		t.Errorf("%s is not free: %v", key, err)
	}
}

// shop is the service, as each test wants it.
type shop struct {
	testpb.UnimplementedShopServer
	buy    func(context.Context, *testpb.Request) (*testpb.Reply, error)
	watch  func(*testpb.Request, grpc.ServerStream) error
	upload func(testpb.Shop_UploadServer) error
	chat   func(testpb.Shop_ChatServer) error
}

func (s *shop) Buy(ctx context.Context, r *testpb.Request) (*testpb.Reply, error) {
	return s.buy(ctx, r)
}

func (s *shop) Watch(r *testpb.Request, ss testpb.Shop_WatchServer) error { return s.watch(r, ss) }

func (s *shop) Upload(ss testpb.Shop_UploadServer) error { return s.upload(ss) }

func (s *shop) Chat(ss testpb.Shop_ChatServer) error { return s.chat(ss) }

// serve serves the shop on a real connection and returns a client of it.
func serve(t testing.TB, s *shop, i *interceptor.Interceptor, more ...grpc.ServerOption) testpb.ShopClient {
	t.Helper()
	server := grpc.NewServer(append(more, grpc.ChainUnaryInterceptor(i.UnaryServer()), grpc.ChainStreamInterceptor(i.StreamServer()))...)
	testpb.RegisterShopServer(server, s)
	if err := i.Validate(server); err != nil {
		t.Fatal(err)
	}
	return testpb.NewShopClient(connect(t, server))
}

// connect serves and returns a connection to it.
func connect(t testing.TB, server *grpc.Server, o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// returns has every call's end at the server told, after its lock's.
func returns() (told chan error, o []grpc.ServerOption) {
	told = make(chan error, 100)
	return told, []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			res, err := handler(ctx, req)
			told <- err
			return res, err
		}),
		grpc.ChainStreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			err := handler(srv, ss)
			told <- err
			return err
		}),
	}
}

// told is what a status says to a client.
type told struct {
	code   codes.Code
	reason string
	retry  time.Duration
	field  string
}

func tell(err error) told {
	st := status.Convert(err)
	got := told{code: st.Code()}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			got.reason = d.GetReason()
			if d.GetDomain() != interceptor.ErrorDomain {
				got.reason += " of " + d.GetDomain()
			}
		case *errdetails.RetryInfo:
			got.retry = d.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			got.field = d.GetFieldViolations()[0].GetField()
		}
	}
	return got
}

// leaseKey is the key of the lease in ctx, "" without one.
func leaseKey(ctx context.Context) string {
	if l, ok := core.LeaseFrom(ctx); ok {
		return l.Key()
	}
	return ""
}

func ended(err error) bool { return err == nil || errors.Is(err, io.EOF) }

// longestRetry is what a client is told to wait for a key with a long TTL.
const longestRetry = 3 * time.Second
