package redislock

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

// WithLink has sessions use a simulated link instead of the client, which may be
// nil.
func WithLink(l *simulation.Link) Option {
	return optionFunc(func(c *config) {
		c.wire = func(time.Duration) (wire, error) { return simulated{l}, nil }
	})
}

// WithJitter replaces the source of random delays, in [0, 1).
func WithJitter(f func() float64) Option { return optionFunc(func(c *config) { c.jitter = f }) }

// WithChannel replaces the random name of a session's channel.
func WithChannel(f func() string) Option { return optionFunc(func(c *config) { c.channel = f }) }

// WithFirstTokensLost has the answers to the first n draws be lost after the key was taken, and counts them.
func WithFirstTokensLost(n int32, lost *atomic.Int32) Option {
	return optionFunc(func(c *config) {
		open := c.wire
		c.wire = func(timeout time.Duration) (wire, error) {
			w, err := open(timeout)
			return tokenless{w, n, lost}, err
		}
	})
}

type tokenless struct {
	wire
	n    int32
	lost *atomic.Int32
}

func (t tokenless) run(ctx context.Context, cmds []*command, replies []reply) {
	t.wire.run(ctx, cmds, replies)
	for i, c := range cmds {
		if c.script == &protocol.Take && replies[i].value == int64(1) && t.lost.Load() < t.n {
			t.lost.Add(1)
			replies[i].drawn, replies[i].drew = protocol.Drawn{}, os.ErrDeadlineExceeded
		}
	}
}

type simulated struct{ link *simulation.Link }

func (s simulated) run(ctx context.Context, cmds []*command, replies []reply) {
	in := make([]simulation.Command, len(cmds))
	for i, c := range cmds {
		in[i] = simulation.Command{Key: c.key, Args: c.args, Draw: c.script == nil || c.script == &protocol.Take, ID: c.id}
		if c.script != nil {
			in[i].Script = c.script.Name
		}
	}
	for i, r := range s.link.Run(ctx, in) {
		replies[i] = reply{value: r.Value, err: r.Err, sentOnce: r.SentOnce}
		if in[i].Draw && r.Err == nil {
			replies[i].drawn, replies[i].drew = protocol.ParseDrawn(r.Drawn)
		}
	}
}

func (s simulated) endsWithContext() bool { return s.link.ObeysContext() }

func (simulated) connections() int { return 8 }

func (simulated) node(string) string { return "" }

func (simulated) scan(context.Context, string, string, int) ([]string, string, error) {
	return nil, "", errors.New("simulated scripts alone")
}

func (s simulated) listen(ctx context.Context, channel string, _ *topics, up func(), message func(string)) error {
	return s.link.Listen(ctx, channel, up, message)
}

func (simulated) tell(context.Context, string, []byte) error { return nil }
