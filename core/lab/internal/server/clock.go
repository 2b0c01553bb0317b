package server

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/internal/wallclock"
)

// launchClocked is launchRedis for a server whose wall clock can be set. Without a C
// compiler it cannot.
func launchClocked(ctx context.Context, folder string, args ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return launchRedis(ctx, folder, args...) // which says what is missing
	}
	clock, err := wallclock.Build(folder)
	if errors.Is(err, exec.ErrNotFound) {
		return launchRedis(ctx, folder, args...)
	}
	if err != nil {
		return nil, err
	}
	s, err := launchRedisBy(ctx, folder, slices.Concat([]string{"env"}, clock.Environment(), []string{"redis-server"}), args...)
	if err != nil {
		return nil, err
	}
	s.clock = clock
	return s, nil
}

// Jump sets the server's wall clock forward, or back if d is negative, by whole seconds from
// what it is. It stays so, also when the server restarts.
func (s *Server) Jump(d time.Duration) error {
	if s.clock == nil {
		return errors.New("the server's clock cannot be set: there is no C compiler to build what it takes")
	}
	return s.clock.Jump(d)
}
