package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// silenceError is the error of a request that got no answer in time.
func silenceError(after time.Duration) error { return &kit.SilenceError{Store: "etcd", After: after} }

// errLeaseEnded is the cause of the end of a lease that etcd has ended.
var errLeaseEnded = errors.New("etcd: the lease has expired or was revoked at the server")

// classify wraps an error of the client library. It returns a *driver.PermanentError if a
// retry is useless.
func classify(err error) error {
	if kit.Final(err) {
		return err
	}
	wrapped := fmt.Errorf("etcd: %w", err)
	switch code(err) {
	case codes.PermissionDenied, codes.Unimplemented:
		return &driver.PermanentError{Err: wrapped}
	case codes.InvalidArgument:
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrAuthOldRevision) {
			return &driver.PermanentError{Err: wrapped}
		}
	case codes.OutOfRange:
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
			return &driver.PermanentError{Err: wrapped}
		}
	case codes.ResourceExhausted, codes.Unauthenticated, codes.FailedPrecondition: // such as no room left
		return &driver.RefusedError{Err: wrapped}
	}
	return wrapped
}

// code returns the gRPC status code of an error.
func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// leaseNotFound reports whether etcd does not know the lease.
func leaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// retryable reports whether another attempt may get another answer.
func retryable(err error) bool { return !kit.Final(err) && !leaseNotFound(err) }

// contextError returns the reason why a context has ended.
func contextError(ctx context.Context) error {
	cause := context.Cause(ctx)
	var quiet *kit.SilenceError
	if errors.Is(cause, driver.ErrClosed) || errors.As(cause, &quiet) {
		return cause
	}
	return ctx.Err()
}

// isLost reports whether err means that a lease has ended.
func isLost(err error) bool { return leaseNotFound(err) || errors.Is(err, driver.ErrNotHeld) }
