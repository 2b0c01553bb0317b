package main

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// The clocks that jump are those of servers. The wall clock of a worker cannot be moved
// apart from the machine's: a Go program reads it from the kernel's page, where nothing can
// be put between. The engine goes by the monotonic clock, and by the wall clock where that
// leaves a lease less time (driver.Remaining): a jump ends leases sooner or does nothing.

const hour = time.Hour

// clockFaults are those of a single server.
var clockFaults = []fault{
	{
		Name: "clock-forward", Only: server.Redis, Alone: true, Lossy: true, Reach: all,
		About: "the store's wall clock jumps an hour forward, and stays so: all leases are over at once",
		make: on(func(_ context.Context, _ *world, s *server.Server) error {
			return s.Jump(hour)
		}),
	},
	{
		Name: "clock-back", Only: server.Redis, Alone: true, Lossy: true, Reach: all,
		About: "the store's wall clock jumps an hour back, and forward again after three TTLs",
		make: on(func(ctx context.Context, w *world, s *server.Server) error {
			if err := s.Jump(-hour); err != nil {
				return err
			}
			return errors.Join(pass(ctx, 3*w.store.Longest), s.Jump(hour))
		}),
	},
}
