package sale

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/lockpage"
)

// entrances is how many ways lead into a shop: a gin route, a gRPC method and a
// function. Their key templates render alike, so that all of them lock the same
// key. With nil locks they are unguarded.
const entrances = 3

// pagePath is where the page of locks is.
const pagePath = "/debug/locks/"

// router is the HTTP entrance, with the page of locks beside it.
func (s *shop) router(locks *core.Engine, wait time.Duration) http.Handler {
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
	}
	return router
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
