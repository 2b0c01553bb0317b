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
)

// silence is the error of a request that got no answer in time.
type silence struct{ after time.Duration }

func (e *silence) Error() string { return fmt.Sprintf("etcd: no answer within %v", e.after) }

// Timeout reports true, as for a net.Error.
func (*silence) Timeout() bool { return true }

// errEnded is the cause of a lease that is no more.
var errEnded = errors.New("etcd: the lease has expired or was revoked at the server")

// classify wraps an error of the client library: in a *driver.PermanentError if
// sending the same again is useless.
func classify(err error) error {
	if err == nil || errors.Is(err, driver.ErrClosed) {
		return err
	}
	if p := new(driver.PermanentError); errors.As(err, &p) {
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
func passing(err error) bool {
	p := new(driver.PermanentError)
	return err != nil && !absent(err) && !errors.Is(err, driver.ErrClosed) && !errors.As(err, &p)
}

// ended says why a context has ended.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	var quiet *silence
	if errors.Is(cause, driver.ErrClosed) || errors.As(cause, &quiet) {
		return cause
	}
	return ctx.Err()
}
