// Package stocktest is a stock service for tests: three entrances with a lock each around
// the same function, buyers who come in by them, and replicas that are processes of their
// own. Their stock refuses what a holder writes after a later one.
package stocktest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
)

// SKU is the product that everybody buys.
const SKU = "sku-4711"

// Deduction is what is bought.
type Deduction struct{ SKU string }

// Sale is a line of the stock's own log.
type Sale struct {
	Replica int // its number
	Left    int
	Token   int64 `json:",string"`
}

// Seller is the function that the locks are around.
type Seller func(context.Context, Deduction) (Sale, error)

// Addresses are where a service listens: the URL of HTTP, and the target of gRPC.
type Addresses struct{ HTTP, GRPC string }

// Service is the entrances of one process.
type Service struct {
	Addresses
	sell    Seller
	rpc     *grpc.Server
	web     *http.Server
	serving sync.WaitGroup
	stockpb.UnimplementedStockServer
}

// Serve opens the entrances, on free ports. Their policies are terms, each with a key
// template of its own. begin comes before the lock of every request, and what it returns
// after the answer; nil does nothing.
func Serve(locks *core.Engine, terms core.Policy, begin func(context.Context) (context.Context, func()), sell Seller) (*Service, error) {
	if begin == nil {
		begin = func(ctx context.Context) (context.Context, func()) { return ctx, func() {} }
	}
	policy := func(key string) core.Policy { terms.Key = key; return terms }
	s := &Service{sell: sell}
	router, ready, err := s.router(locks, policy, begin)
	if err != nil {
		return nil, err
	}
	rules := interceptor.Lock(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: policy("stock:{sku}")})
	s.rpc = grpc.NewServer(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			ctx, end := begin(ctx)
			defer end()
			return handler(ctx, req)
		}, rules.UnaryServer()))
	stockpb.RegisterStockServer(s.rpc, s)
	if err := errors.Join(ready(), rules.Validate(s.rpc)); err != nil {
		return nil, err
	}
	s.web = &http.Server{Handler: router, ReadHeaderTimeout: time.Minute}
	var addrs [2]string
	for i, serve := range []func(net.Listener) error{s.web.Serve, s.rpc.Serve} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		addrs[i] = l.Addr().String()
		s.serving.Go(func() { _ = serve(l) }) // returns when it is stopped
	}
	s.Addresses = Addresses{"http://" + addrs[0], addrs[1]}
	return s, nil
}

// router has a route with a lock, and one without to the function with a lock.
func (s *Service) router(locks *core.Engine, policy func(key string) core.Policy, begin func(context.Context) (context.Context, func())) (http.Handler, func() error, error) {
	table, err := middleware.NewTable(locks, middleware.Rules{"POST /products/:sku/deduct": policy("stock:{path.sku}")})
	if err != nil {
		return nil, nil, err
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.ContextWithFallback = true
	router.Use(func(c *gin.Context) {
		ctx, end := begin(c.Request.Context())
		defer end()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}, table.Handler())
	router.POST("/products/:sku/deduct", func(c *gin.Context) {
		_, err := s.sell(c.Request.Context(), Deduction{c.Param("sku")})
		if a := answerToError(err); a.reason == "" {
			c.JSON(a.http, a.word)
		}
	})
	locked := decorator.WithLock(locks, policy("stock:{SKU}"), s.sell)
	router.POST("/function/:sku", func(c *gin.Context) {
		_, err := locked(c.Request.Context(), Deduction{c.Param("sku")})
		a := answerToError(err)
		c.JSON(a.http, gin.H{"code": a.reason, "detail": a.word})
	})
	return router, func() error { return table.Validate(router.Routes()) }, nil
}

// Deduct is the guarded call behind gRPC.
func (s *Service) Deduct(ctx context.Context, r *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	made, err := s.sell(ctx, Deduction{r.GetSku()})
	if a := answerToError(err); a.reason == "" {
		return &stockpb.Receipt{Left: int64(made.Left), Token: made.Token}, status.Error(a.grpc, a.word)
	}
	return nil, ctx.Err()
}

// Close returns when all calls have ended.
func (s *Service) Close() error {
	s.rpc.GracefulStop()
	err := s.web.Shutdown(context.Background())
	s.serving.Wait()
	return err
}
