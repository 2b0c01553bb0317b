package redisfence

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/fence"
)

// Guard answers whether a token is stale, and remembers it. It implements fence.Guard:
// for a surface, and before a resource is read. A process may be paused between its
// answer and the write that follows; write with a [Script] where the resource is in
// Redis. It is safe for concurrent use.
type Guard struct {
	client redis.Scripter
	script *Script
}

var _ fence.Guard = (*Guard)(nil)

// New returns a guard that keeps its numbers by way of client, as [Script.Run] takes
// it. Guards and scripts with the same options share the number of each key. It does
// no I/O, and panics if an option cannot work. Nil options do nothing.
func New(client redis.Scripter, o ...Option) *Guard {
	return &Guard{client: client, script: NewScript("", o...)}
}

// Admit admits a token. The error is around [fence.ErrStale], that of [fence.Token.Validate],
// or what has kept Redis from answering.
func (g *Guard) Admit(ctx context.Context, t fence.Token) error {
	if err := g.script.Run(ctx, g.client, t, nil).Err(); !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}
