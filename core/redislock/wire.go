package redislock

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// wire is how a session reaches its server. It is safe for concurrent use.
type wire interface {
	// run sends the commands as one batch and sets the reply to each, at its
	// index. When ctx ends it should return; it may take longer while the client
	// library waits for a socket. After it has returned it uses no argument any more.
	run(ctx context.Context, cmds []*command, replies []reply)

	// endsWithContext reports whether run always returns when its ctx ends.
	endsWithContext() bool

	// connections returns how many runs a server may get at once.
	connections() int

	// node returns the name of the server that has the key. It does not block: it is ""
	// while a server would have to be asked, and for all keys if there is one server.
	node(key string) string

	// listen subscribes to the channel and the topics, in one command, and
	// blocks until the subscription ends or ctx does. It follows the topics as
	// they change. It calls up whenever the server has confirmed the channel,
	// the first time and after each reconnection, and message with each payload
	// of the channel, both from one goroutine at a time.
	listen(ctx context.Context, channel string, t *topics, up func(), message func(payload string)) error

	// tell publishes a message on a channel. When ctx ends it should return; it may take longer
	// while the client library waits for a socket.
	tell(ctx context.Context, channel string, message []byte) error

	// scan looks at about limit names, and returns the keys of those that are locks' and whose
	// keys begin with prefix. after and next are as for driver.Lister.
	scan(ctx context.Context, prefix, after string, limit int) (keys []string, next string, err error)
}

// command is one call of a script, or a token that is drawn.
type command struct {
	script *protocol.Script // nil to draw only
	key    string           // in Redis
	args   []any
	source bool   // send the script's source, even if the server may know it
	id     string // of what is drawn, or "" for the server's choice

	// grants says that the command makes a lease, or lengthens one.
	grants bool

	// written, if not nil, is for an End: see driver.Ending.
	written func()

	// value, if not nil, is how the key of a lease was taken that the script does nothing but end, if it is a
	// string still. A server that can delete a key by its value needs no script then.
	value *protocol.TakeArgs
}

func endCommand(key string, a protocol.EndArgs) command {
	return command{script: &protocol.End, key: key, args: a.Args()}
}

func renewCommand(key string, r driver.Renewal) command {
	return command{
		script: &protocol.Renew,
		key:    key,
		grants: true,
		args:   protocol.RenewArgs{Owner: r.Owner, Token: r.Token, TTL: r.TTL, Share: r.Share}.Args(),
	}
}

// reply is the outcome of a command.
type reply struct {
	value any   // as a Redis client returns it, if err is nil; of Take 1 or 0
	err   error // a *driver.PermanentError if sending it again is useless

	drawn protocol.Drawn // by Take, or by a command without a script; zero if nothing was drawn
	drew  error          // why nothing was

	// sentOnce says that the command was sent at most once: no copy of it can be
	// executed after this reply.
	sentOnce bool

	// unconfirmed is why too few replicas have what a command that grants has written; nil if they have it, or
	// none is waited for.
	unconfirmed error

	// misrouted says that the command may have been executed by a server that did not
	// have the key while another one did: the client of a Cluster was redirected there
	// and arrived after the key had moved away. A grant of such a server excludes nobody,
	// and a lease that it does not know may exist elsewhere.
	misrouted bool
}

// denied reports whether the reply to an ending says that the owner had nothing.
func denied(value any) bool {
	r, err := protocol.ParseEnd(value)
	return err == nil && (r.Status == protocol.NotMine || r.Status == protocol.Absent)
}

// KeyPrefix begins the name of every Redis key. Grant a user of an ACL
// "~la2:*".
const KeyPrefix = "la2:"

// minTTL leaves room for the margin of the deadline, 2 ms, and for a round trip
// to renew.
const minTTL = 10 * time.Millisecond

// A failed attempt is repeated after firstPause. The pause doubles with each further failure,
// up to maxPause or a little more.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = time.Second
)

// The commands that delete a key if it is a string of that value: of Redis from 8.4 on, and of Valkey
// from 9.0 on.
const (
	deleteEx      = "delex"
	deleteIfEqual = "delifeq"
)

// deletion is how a server deletes a key by its value: by one command or the other, or by the script
// that ends a lease. Each is tried until the server, or the user's rights, do not have it. The zero value
// has tried none.
type deletion struct {
	tried               atomic.Int32
	byScript, byCommand atomic.Bool // a lease was ended so
}

var deletions = [...]string{deleteEx, deleteIfEqual, ""}

// known returns the command, or "" for the script.
func (d *deletion) known() string { return deletions[d.tried.Load()] }

// forget begins anew: there may be another server.
func (d *deletion) forget() {
	d.tried.Store(0)
	d.byScript.Store(false)
	d.byCommand.Store(false)
}

// proven returns whether a lease was ended by a command, or by the script if it is "": one request is enough then.
func (d *deletion) proven(by string) *atomic.Bool {
	if by == "" {
		return &d.byScript
	}
	return &d.byCommand
}

// failed reports whether a command has deleted nothing. The script has to say why, or do more.
func (d *deletion) failed(by string, a answer) bool {
	if a.err == nil {
		return a.value != int64(1)
	}
	if redis.HasErrorPrefix(a.err, "unknown command") || redis.HasErrorPrefix(a.err, "NOPERM") {
		if at := d.tried.Load(); deletions[at] == by {
			d.tried.CompareAndSwap(at, at+1)
		}
	}
	return isReply(a.err)
}

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
