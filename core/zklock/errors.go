package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// silenceError is the error of an attempt that got no answer in time.
func silenceError(after time.Duration) error {
	return &kit.SilenceError{Store: "zookeeper", After: after}
}

// callerError is classify, but returns the errors of the driver contract unchanged.
func callerError(err error) error {
	held := new(driver.HeldError)
	if errors.As(err, &held) || errors.Is(err, driver.ErrPlaceLost) || errors.Is(err, driver.ErrNotHeld) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return classify(err)
}

// permanent are the errors that stay until somebody changes the servers or the options.
var permanent = []error{
	zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrAPIError,
	zk.ErrNoChildrenForEphemerals,
}

// classify wraps an error of the client library. It returns a *driver.PermanentError if a
// retry is useless.
func classify(err error) error {
	if kit.Final(err) || errors.As(err, new(*kit.SilenceError)) {
		return err
	}
	wrapped := fmt.Errorf("zookeeper: %w", err)
	for _, p := range permanent {
		if errors.Is(err, p) {
			return &driver.PermanentError{Err: wrapped}
		}
	}
	return wrapped
}

// lostReply reports whether a request with this error may have been executed.
func lostReply(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, zk.ErrNoServer) || isNet(err)
}

// isNet reports whether the error is one of a connection, or a kit.SilenceError.
func isNet(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t)
}

// ignore returns nil for errors that are expected.
func ignore(err error, expected ...error) error {
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
