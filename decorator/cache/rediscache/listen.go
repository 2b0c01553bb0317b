package rediscache

import (
	"context"

	"github.com/lockaround/lockaround/decorator/internal/redispush"
)

// Listen subscribes, on a connection outside the client's pool, as [cache.Announcer] says. It
// returns when the connection has failed, or has been silent for 3 s and did not answer a
// ping within 3 s more.
func (s *Store) Listen(ctx context.Context, up func(), changed func(key string)) error {
	err := redispush.Channel{Client: s.client, Name: s.channel, Check: s.check}.Listen(ctx, up, changed)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return failure("listen", err)
}
