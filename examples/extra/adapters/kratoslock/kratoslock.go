// Package kratoslock puts package interceptor around the methods of a kratos service, by HTTP
// and by gRPC alike:
//
//	locks := kratoslock.Server(interceptor.Lock(engine, interceptor.Rules{
//		"/stock.v1.Stock/Deduct": {Key: "stock:{sku}", Wait: 500 * time.Millisecond},
//	}))
//	http.NewServer(http.Middleware(locks))
//	grpc.NewServer(grpc.Middleware(locks))
//
// Rules may be options in the .proto files too, see interceptor.FromProto. The key is made of
// the message that the method gets, whatever it was decoded from. A server's Timeout, of which
// kratos has one of a second, bounds the wait too. Streams are for kratos' grpc.StreamInterceptor
// with the interceptor's own StreamServer.
package kratoslock

import (
	"context"

	"github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/middleware"
	"github.com/go-kratos/kratos/v2/transport"
	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// Server returns a middleware for kratos' servers. Errors of locks are, by gRPC, those of package
// interceptor, and by HTTP kratos' own form of them, with the statuses of package httplock.
func Server(i *interceptor.Interceptor) middleware.Middleware {
	around := i.UnaryServer()
	return func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			tr, ok := transport.FromServerContext(ctx)
			if !ok {
				return nil, errors.InternalServer("LOCK_POLICY", "the lock is not behind a server of kratos")
			}
			res, err := around(ctx, req, &grpc.UnaryServerInfo{FullMethod: tr.Operation()}, grpc.UnaryHandler(next))
			p, locked := httplock.ProblemOf(ctx, err)
			if !locked || tr.Kind() != transport.KindHTTP {
				return res, err
			}
			if after := p.Header.Get("Retry-After"); after != "" {
				tr.ReplyHeader().Set("Retry-After", after)
			}
			told := errors.FromError(interceptor.Status(err))
			return nil, errors.New(p.Status, told.Reason, told.Message).WithCause(err)
		}
	}
}

// Header makes {placeholder} the value of a request's header: by HTTP, where {meta.name} finds
// nothing, and by gRPC.
func Header(placeholder, header string) interceptor.Option {
	return interceptor.WithValue(placeholder, func(ctx context.Context, _ any) (string, error) {
		tr, ok := transport.FromServerContext(ctx)
		if !ok {
			return "", core.ErrMissing
		}
		values := tr.RequestHeader().Values(header)
		if len(values) > 1 {
			return "", core.ErrRepeated
		}
		return tr.RequestHeader().Get(header), nil // nothing is core.ErrMissing
	})
}
