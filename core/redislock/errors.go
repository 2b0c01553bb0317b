package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// silence is the error of an attempt that got no answer in time.
func silence(after time.Duration) error { return &kit.SilenceError{Store: "redis", After: after} }

// errEmpty is the error of an empty answer.
var errEmpty = errors.New("an empty reply")

// isReply reports whether err is an error reply: the connection still works.
func isReply(err error) bool {
	re := redis.Error(nil)
	return errors.As(err, &re)
}

// permanentPrefixes begin the error replies, less a leading "ERR ", that the same
// command will get again until somebody changes the server or the client's
// options. All others pass: LOADING, BUSY, READONLY, OOM, MASTERDOWN,
// NOREPLICAS, CLUSTERDOWN, TRYAGAIN and what a later server invents.
var permanentPrefixes = []string{
	"NOPERM",
	"NOAUTH",
	"Protocol error: unauthenticated", // in place of NOAUTH, for a command of many words
	"WRONGPASS",
	"WRONGTYPE",
	"unknown command",
	"Unknown Redis command",
	"The user executing the script can't",
	"ACL failure in script", // in place of the one before, from Redis 7.2 on and from Valkey
	"invalid password",
	"Client sent AUTH",
	"AUTH ",
}

// classify wraps an error of the client library or of a reply's parser: in a
// *driver.PermanentError if sending the same again is useless.
func classify(err error) error {
	if kit.Final(err) {
		return err
	}
	wrapped := fmt.Errorf("redis: %w", err)
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, protocol.ErrMalformed) {
		return &driver.PermanentError{Err: wrapped}
	}
	if re := redis.Error(nil); errors.As(err, &re) {
		if damaged.MatchString(re.Error()) {
			return &driver.PermanentError{Err: fmt.Errorf("redis: the key's hash is damaged; find out who writes there, and delete it: %w", err)}
		}
		text := strings.TrimPrefix(commandError(re.Error()), "ERR ")
		for _, p := range permanentPrefixes {
			if strings.HasPrefix(text, p) {
				return &driver.PermanentError{Err: wrapped}
			}
		}
		return &driver.RefusedError{Err: wrapped}
	}
	return wrapped
}

// damaged is in the error of a script that found a field which no script has written, such as a
// token that is no number: Lua says so.
var damaged = regexp.MustCompile(`user_script:\d+: (attempt to (perform|compare|concatenate|get|index) |bad argument )`)

// isMoving reports whether a Cluster refuses what needs a key of a slot that moves. It has done
// nothing.
func isMoving(err error) bool { return repliesWith(err, "TRYAGAIN") }

// isOverwritten reports whether the server has something else under the key: nobody holds
// the lock any more.
func isOverwritten(err error) bool { return repliesWith(err, "WRONGTYPE") }

// repliesWith reports whether err is an error reply of that kind, also of a command inside a script.
func repliesWith(err error, kind string) bool {
	re := redis.Error(nil)
	return errors.As(err, &re) && strings.HasPrefix(commandError(re.Error()), kind)
}

// commandError returns the error of the command inside a script that failed.
// Servers before 7.0 put the script's name and line before it, once or twice:
//
//	ERR Error running script (call to f_<sha>): @user_script:1: WRONGTYPE Operation against …
func commandError(text string) string {
	if !strings.HasPrefix(text, "ERR Error running script") {
		return text
	}
	const script = "@user_script:"
	for {
		i := strings.Index(text, script)
		if i < 0 {
			return text
		}
		_, inner, ok := strings.Cut(text[i+len(script):], ": ")
		if !ok {
			return text
		}
		text = inner
	}
}

// serverError is an error reply that a script has caught.
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError marks it as a reply of the server.
func (serverError) RedisError() {}
