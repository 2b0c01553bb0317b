package server

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Three is a kind of three Redis servers that know nothing of each other.
const Three Kind = "three redis"

func startThree(ctx context.Context) (*Server, error) {
	s := &Server{}
	s.Wipe = func(ctx context.Context) (err error) {
		for _, m := range s.Members {
			err = errors.Join(err, m.Wipe(ctx))
		}
		return err
	}
	for range 3 {
		m, err := startRedis(ctx, servers.StartRedis, false)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.Members, s.Version = append(s.Members, m), m.Version
	}
	return s, nil
}
