package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
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
