package zklock

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// silence is the error of an attempt that got no answer in time.
func silence(after time.Duration) error {
	return &kit.SilenceError{Store: "zookeeper", After: after}
}

// permanent are the errors that the same request will get again until somebody
// changes the servers or the options.
var permanent = []error{
	zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrAPIError,
	zk.ErrNoChildrenForEphemerals,
}

// classify wraps an error of the client library: in a *driver.PermanentError if
// sending the same again is useless.
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

// lostReply reports whether a request that failed so may have been executed.
func lostReply(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, zk.ErrNoServer) || isNet(err)
}

// again reports whether to repeat a request at once, on the connection that follows
// the one that is lost: it bears being executed twice.
func again(c caller, err error) bool {
	return lostReply(err) && !errors.As(err, new(*kit.SilenceError)) && c.ctx.Err() == nil
}

// isNet reports whether the error is one of a connection, or a silence.
func isNet(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t)
}
