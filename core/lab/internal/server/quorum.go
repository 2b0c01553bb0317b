package server

import (
	"context"
	"errors"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Votes is how many servers a [Voters] has.
const Votes = 5

// Voters are Redis servers that know nothing of each other, each with a clock of its own.
type Voters struct{ servers.Nodes }

func startVoters(ctx context.Context) (v *Voters, err error) {
	v = &Voters{}
	for range Votes {
		n, err := servers.StartRedis(ctx, servers.Options{Clock: true})
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v, nil
}

// Masters returns the addresses of those that serve.
func (v *Voters) Masters(context.Context) ([]string, error) { return v.Serving().Addrs(), nil }

// Mend starts what is dead. See [Mender].
func (v *Voters) Mend(ctx context.Context) (unasked bool, err error) { return false, v.Revive(ctx) }
