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

// silence is the error of a request that got no answer in time.
func silence(after time.Duration) error { return &kit.SilenceError{Store: "etcd", After: after} }

// errEnded is the cause of a lease that is no more.
var errEnded = errors.New("etcd: the lease has expired or was revoked at the server")

// classify wraps an error of the client library: in a *driver.PermanentError if
// sending the same again is useless.
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
	}
	return wrapped
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// absent reports whether the server has said that it does not know the lease.
func absent(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// passing reports whether another attempt may have another answer.
func passing(err error) bool { return !kit.Final(err) && !absent(err) }

// ended says why a context has ended.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	var quiet *kit.SilenceError
	if errors.Is(cause, driver.ErrClosed) || errors.As(cause, &quiet) {
		return cause
	}
	return ctx.Err()
}
