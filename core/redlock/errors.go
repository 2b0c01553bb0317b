package redlock

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

// errMalformed says that a reply is not one of the scripts'.
var errMalformed = errors.New("a reply that no script of this driver gives")

// permanentPrefixes begin the error replies, less a leading "ERR ", that the same
// command will get again until somebody changes the server or the client's options.
var permanentPrefixes = []string{
	"NOPERM",
	"NOAUTH",
	"Protocol error: unauthenticated", // in place of NOAUTH, for a command of many words
	"WRONGPASS",
	"WRONGTYPE",
	"MOVED", // the server is one of a Cluster
	"unknown command",
	"The user executing the script can't",
	"ACL failure in script", // in place of the one before, from Redis 7.2 on and from Valkey
	"invalid password",
	"Client sent AUTH",
	"AUTH ",
}

// damaged is in the error of a script that found a field which no script has written, such as a
// token that is no number: Lua says so.
var damaged = regexp.MustCompile(`user_script:\d+: (attempt to (perform|compare|concatenate|get|index) |bad argument )`)

// classify wraps an error of the client library or of a reply's parser: in a
// *driver.PermanentError if sending the same again is useless.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, errMalformed) {
		return &driver.PermanentError{Err: err}
	}
	if isReply(err) {
		if damaged.MatchString(err.Error()) {
			return &driver.PermanentError{Err: fmt.Errorf("the key's hash is damaged; find out who writes there, and delete it: %w", err)}
		}
		text := strings.TrimPrefix(err.Error(), "ERR ")
		for _, p := range permanentPrefixes {
			if strings.HasPrefix(text, p) {
				return &driver.PermanentError{Err: err}
			}
		}
		return &driver.RefusedError{Err: err}
	}
	return err
}

// isPermanent reports whether asking again is useless.
func isPermanent(err error) bool {
	p := new(driver.PermanentError)
	return errors.As(err, &p)
}

// isReply reports whether err is an error reply: the connection still works.
func isReply(err error) bool {
	re := redis.Error(nil)
	return errors.As(err, &re)
}

// isTimeout reports whether no answer came in time.
func isTimeout(err error) bool {
	t := interface{ Timeout() bool }(nil)
	return errors.As(err, &t) && t.Timeout()
}

// neverSent reports whether nothing was sent, for want of a connection.
func neverSent(err error) bool {
	op := new(net.OpError)
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrClosed)
}
