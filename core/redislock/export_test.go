package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Command is what a session asks a Wire to run.
type Command struct {
	Script protocol.Script
	Key    string
	Args   []any
}

// Reply is what became of a Command.
type Reply struct {
	Value any
	Err   error
	Once  bool
}

// Wire stands in for the server and the network to it; see wire.
type Wire interface {
	Run(ctx context.Context, cmds []Command) []Reply
	Listen(ctx context.Context, channel string, up func(), message func(payload string)) error
}

// WithWire has sessions use w instead of the client, which may be nil.
func WithWire(w Wire) Option {
	return optionFunc(func(c *config) {
		c.wire = func(time.Duration) (wire, error) { return wireFrom{w}, nil }
	})
}

// WithJitter replaces the source of random delays, in [0, 1).
func WithJitter(f func() float64) Option { return optionFunc(func(c *config) { c.jitter = f }) }

// WithChannel replaces the random name of a session's channel.
func WithChannel(f func() string) Option { return optionFunc(func(c *config) { c.channel = f }) }

type wireFrom struct{ w Wire }

func (f wireFrom) run(ctx context.Context, cmds []command) []reply {
	in := make([]Command, len(cmds))
	for i, c := range cmds {
		in[i] = Command{c.script, c.key, c.args}
	}
	out := make([]reply, len(cmds))
	for i, r := range f.w.Run(ctx, in) {
		out[i] = reply{r.Value, r.Err, r.Once}
	}
	return out
}

func (f wireFrom) listen(ctx context.Context, channel string, up func(), message func(string)) error {
	return f.w.Listen(ctx, channel, up, message)
}
