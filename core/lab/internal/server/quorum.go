package server

import (
	"context"
	"errors"
	"time"
)

// Votes is how many servers a [Voters] has.
const Votes = 5

// Voters are servers that know nothing of each other. It is for one goroutine.
type Voters struct{ several }

func startVoters(ctx context.Context) (v *Voters, err error) {
	v = &Voters{}
	for range Votes {
		n, err := nodeIn(func(folder string) (*Server, error) { return launchClocked(ctx, folder, forgetful...) })
		if err != nil {
			return nil, errors.Join(err, v.Close())
		}
		v.several = append(v.several, n)
	}
	return v, nil
}

// Masters returns the addresses of those that are alive.
func (v *Voters) Masters(context.Context) ([]string, error) {
	var out []string
	for _, n := range v.several {
		if !n.dead {
			out = append(out, n.Addr)
		}
	}
	return out, nil
}

// Restart kills all and starts them again, empty.
func (v *Voters) Restart(ctx context.Context) error {
	v.die()
	return v.revive(ctx)
}

// Kill kills the nth, from 0.
func (v *Voters) Kill(n int) { v.several[n].die() }

// Revive starts the nth again, empty, if it is dead.
func (v *Voters) Revive(ctx context.Context, n int) error { return v.several[n].revive(ctx) }

// Freeze stops the nth. thaw has it go on.
func (v *Voters) Freeze(n int) (thaw func() error, err error) {
	frozen := v.several[n].Server
	return frozen.Cont, frozen.Stop()
}

// Jump sets the clock of the nth. See [Server.Jump].
func (v *Voters) Jump(n int, d time.Duration) error { return v.several[n].Jump(d) }

// Mend starts what is dead. See [Mender].
func (v *Voters) Mend(ctx context.Context) (unasked bool, err error) { return false, v.revive(ctx) }
