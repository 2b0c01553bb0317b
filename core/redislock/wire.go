package redislock

import (
	"context"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// command is one run of a script.
type command struct {
	script *protocol.Script
	key    string // as protocol.Key returns it
	args   []any
	source bool // send the script's source even if the server may know it
}

// reply is what became of a command.
type reply struct {
	value any   // as a Redis client returns it, if err is nil
	err   error // a *driver.PermanentError if sending it again is useless

	// once says that the command left at most once: no copy of it can be
	// executed after this reply.
	once bool

	// astray says that the command may have been executed by a server that did
	// not have the key while another did: a Cluster's client was sent there and
	// arrived so late that the key had moved away meanwhile. What such a server
	// grants excludes nobody, and what it denies may be true elsewhere.
	astray bool
}

// wire is how a session reaches its server. It is safe for concurrent use.
type wire interface {
	// run sends the commands as one batch and sets the reply to each, at its
	// index. ctx asks it to return; it may take longer, for as long as the client
	// library holds on to a socket. Then nothing of what it was given is used any more.
	run(ctx context.Context, cmds []*command, replies []reply)

	// prompt reports whether run returns at the end of its ctx in any case.
	prompt() bool

	// connections is how many runs a server is to get at once at most.
	connections() int

	// node names the server that has the key, as far as that is known without
	// asking one; all keys have the same name if there is one server. It does
	// not block.
	node(key string) string

	// listen subscribes to the channel and blocks until the subscription ends
	// or ctx does. It calls up whenever the server has confirmed the
	// subscription, the first time and after each reconnection, and message
	// with each payload, both from one goroutine at a time.
	listen(ctx context.Context, channel string, up func(), message func(payload string)) error
}
