package sale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// deductRequest asks for one unit of a product.
type deductRequest struct {
	SKU string
}

// receipt confirms a sale.
type receipt struct {
	SKU  string `json:"sku"`
	Left int    `json:"left"`

	// Token is the lease's fencing token, 0 without a lock; a string in JSON,
	// whose numbers are doubles to most readers.
	Token int64 `json:"token,omitempty,string"`
}

var (
	errSoldOut = errors.New("sold out")
	errUnknown = errors.New("no such product")

	// errUnreachable is all that a client learns of other errors.
	errUnreachable = errors.New("the stock cannot be reached")
)

// shop sells from a stock: over HTTP, over gRPC and by a function call.
type shop struct {
	stock  stock
	url    string // of the HTTP server
	target string // of the gRPC server: host:port
	deduct func(context.Context, deductRequest) (receipt, error)
	cost   counter

	http   *http.Server
	grpc   *grpc.Server
	served chan error   // what each server ended with
	locks  *core.Engine // nil without locks
	shut   func() error // closes the connection to their store; nil: there is none

	mu    sync.Mutex
	waits []time.Duration // from the arrival of each call to its run
}

// openTime bounds what it takes to begin with a store.
const openTime = 20 * time.Second

// servers is how many servers a shop has.
const servers = 2

// open opens a shop that listens on o.addr and o.grpcAddr. If o.locked all of
// its entrances are guarded, and by the same key. Whoever does not get the lock
// within wait is turned away.
func open(o options, st stock, wait time.Duration) (*shop, error) {
	s := &shop{stock: st, served: make(chan error, servers)}
	if err := s.start(o, wait); err != nil {
		return nil, errors.Join(err, s.closeLocks())
	}
	return s, nil
}

func (s *shop) start(o options, wait time.Duration) error {
	if o.locked {
		store, err := s.driver(o)
		if err != nil {
			return err
		}
		locks, err := core.New(store, core.WithNamespace("stock-example."+o.namespace), core.WithMaxWaiters(maxBuyers))
		if err != nil {
			return err
		}
		s.locks = locks
		if err := s.greet(o); err != nil {
			return err
		}
	}
	s.deduct = s.function(s.locks, wait)
	router, err := s.router(o, s.locks, wait)
	if err != nil {
		return err
	}
	s.http = &http.Server{Handler: router, ReadHeaderTimeout: time.Minute}
	if s.grpc, err = s.rpcServer(s.locks, wait); err != nil {
		return err
	}

	web, err := net.Listen("tcp", o.addr)
	if err != nil {
		return fmt.Errorf("open the shop to HTTP: %w", err)
	}
	rpc, err := net.Listen("tcp", o.grpcAddr)
	if err != nil {
		return errors.Join(fmt.Errorf("open the shop to gRPC: %w", err), web.Close())
	}
	s.url, s.target = "http://"+web.Addr().String(), rpc.Addr().String()
	go func() { s.served <- s.http.Serve(web) }()
	go func() { s.served <- s.grpc.Serve(rpc) }()
	return nil
}

// greet finds out whether the store of the locks answers. That of the stock has been
// asked before.
func (s *shop) greet(o options) error {
	if o.store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	if err := s.locks.Ping(ctx); err != nil {
		return fmt.Errorf("the locks in %s: %w", o.store.Name, err)
	}
	return nil
}

// driver is the store of the locks, counted.
func (s *shop) driver(o options) (driver.Driver, error) {
	store := o.store
	if store == nil && o.place.kind == nowhere {
		store = &Memory
	}
	if store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), openTime)
		defer cancel()
		d, shut, err := store.Open(ctx, o.at)
		if err != nil {
			return nil, fmt.Errorf("open the locks in %s: %w", store.Name, err) // the address may hold a password
		}
		s.shut = shut
		return counted{Driver: d, counter: &s.cost, calls: true}, nil
	}
	rdb := o.place.client(s.cost.dial())
	s.shut = rdb.Close
	return counted{Driver: redislock.New(rdb), counter: &s.cost}, nil
}

// sell takes one unit: it reads the number and writes one less. Whoever reads
// between the two sells the same unit again.
func (s *shop) sell(ctx context.Context, r deductRequest) (receipt, error) {
	s.began(ctx)
	units, err := s.stock.Units(ctx, r.SKU)
	if err != nil {
		return receipt{}, fmt.Errorf("read the stock: %w", err)
	}
	if units < 1 {
		return receipt{}, errSoldOut
	}
	if err := s.stock.SetUnits(ctx, r.SKU, units-1); err != nil {
		return receipt{}, fmt.Errorf("write the stock: %w", err)
	}
	sold := receipt{SKU: r.SKU, Left: units - 1}
	if lease, ok := core.LeaseFrom(ctx); ok {
		sold.Token = lease.Token()
	}
	return sold, nil
}

type arrivalKey struct{}

// arrive notes in the context when a call came to the lock.
func arrive(ctx context.Context) context.Context {
	return context.WithValue(ctx, arrivalKey{}, time.Now())
}

// began records how long the call waited since it arrived.
func (s *shop) began(ctx context.Context) {
	at, ok := ctx.Value(arrivalKey{}).(time.Time)
	if !ok {
		at = time.Now()
	}
	s.mu.Lock()
	s.waits = append(s.waits, time.Since(at))
	s.mu.Unlock()
}

// closeTime bounds the wait for calls that are still running.
const closeTime = 10 * time.Second

// Close refuses new calls, waits for those that are running, and then ends the
// locks: in this order, since a call may hold one.
func (s *shop) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- drain(ctx, s.grpc) }()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("close the shop to HTTP: %w", err), s.http.Close())
	}
	err = errors.Join(err, <-drained)
	for range servers {
		if e := <-s.served; !errors.Is(e, http.ErrServerClosed) && !errors.Is(e, grpc.ErrServerStopped) {
			err = errors.Join(err, e)
		}
	}
	if s.locks != nil {
		err = errors.Join(err, s.locks.Shutdown(ctx))
	}
	return errors.Join(err, s.closeLocks())
}

// drain stops the server when its calls have ended, or when ctx does; in the
// latter case it returns ctx's error.
func drain(ctx context.Context, server *grpc.Server) error {
	unbind := context.AfterFunc(ctx, server.Stop)
	server.GracefulStop()
	if !unbind() {
		return fmt.Errorf("close the shop to gRPC: %w", ctx.Err())
	}
	return nil
}

func (s *shop) closeLocks() error {
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	if s.shut != nil {
		err = errors.Join(err, s.shut())
	}
	return err
}

// entrances is how many ways lead into a shop: a gin route, a gRPC method and a
// function. Their key templates render alike, so that all of them lock the same
// key. With nil locks they are unguarded.
const entrances = 3

// pagePath is where the page of locks is.
const pagePath = "/debug/locks/"

// router is the HTTP entrance, with the page of locks beside it.
func (s *shop) router(o options, locks *core.Engine, wait time.Duration) (http.Handler, error) {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.ContextWithFallback = true
	router.Use(func(c *gin.Context) { c.Request = c.Request.WithContext(arrive(c.Request.Context())) })
	way := []gin.HandlerFunc{s.handle}
	if locks != nil {
		way = []gin.HandlerFunc{middleware.Lock(locks, core.Policy{Name: "stock", Key: "stock:{path.sku}", Wait: wait}), s.handle}
	}
	router.POST("/products/:sku/deduct", way...)
	if locks != nil {
		// Keys are names of products here. A service has its operators' authentication before it.
		router.Any(pagePath+"*page", gin.WrapH(lockpage.Handler(locks, lockpage.ShowKeys())))
		if err := s.takeOrders(router, o, locks, wait); err != nil {
			return nil, err
		}
	}
	return router, nil
}

func (s *shop) handle(c *gin.Context) {
	r, err := s.sell(c.Request.Context(), deductRequest{SKU: c.Param("sku")})
	switch {
	case errors.Is(err, errSoldOut):
		c.JSON(http.StatusGone, gin.H{"error": err.Error()})
	case errors.Is(err, errUnknown):
		c.JSON(http.StatusNotFound, gin.H{"error": errUnknown.Error()})
	case err != nil:
		_ = c.Error(err) // kept for middleware; the client learns no more than the status
		c.JSON(http.StatusBadGateway, gin.H{"error": errUnreachable.Error()})
	default:
		c.JSON(http.StatusOK, r)
	}
}

// rpcServer is the gRPC entrance. The error is a rule for a method that the
// server does not have.
func (s *shop) rpcServer(locks *core.Engine, wait time.Duration) (*grpc.Server, error) {
	options := []grpc.ServerOption{grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			return handler(arrive(ctx), req)
		})}
	var li *interceptor.Interceptor
	if locks != nil {
		li = interceptor.Lock(locks, interceptor.Rules{
			stockpb.Stock_Deduct_FullMethodName: {Name: "stock", Key: "stock:{sku}", Wait: wait},
		})
		options = append(options, grpc.ChainUnaryInterceptor(li.UnaryServer()), grpc.ChainStreamInterceptor(li.StreamServer()))
	}
	server := grpc.NewServer(options...)
	stockpb.RegisterStockServer(server, rpc{shop: s})
	reflection.Register(server) // for grpcurl
	if li != nil {
		if err := li.Validate(server); err != nil {
			return nil, err
		}
	}
	return server, nil
}

type rpc struct {
	stockpb.UnimplementedStockServer
	shop *shop
}

// Deduct sells one unit.
func (r rpc) Deduct(ctx context.Context, in *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	sold, err := r.shop.sell(ctx, deductRequest{SKU: in.GetSku()})
	switch {
	case errors.Is(err, errSoldOut):
		return nil, status.Error(codes.ResourceExhausted, errSoldOut.Error())
	case errors.Is(err, errUnknown):
		return nil, status.Error(codes.NotFound, errUnknown.Error())
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		// Not UNAVAILABLE, which many clients repeat: the unit may be gone.
		return nil, status.Error(codes.Internal, errUnreachable.Error())
	}
	return &stockpb.Receipt{Sku: sold.SKU, Left: int64(sold.Left), Token: sold.Token}, nil
}

// function is the entrance for callers in the same process.
func (s *shop) function(locks *core.Engine, wait time.Duration) func(context.Context, deductRequest) (receipt, error) {
	if locks == nil {
		return s.sell
	}
	return decorator.WithLock(locks, core.Policy{Name: "stock", Key: "stock:{SKU}", Wait: wait}, s.sell)
}
