package server

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Watched is a Redis master with two replicas, under the watch of sentinels.
type Watched struct {
	*servers.Watched
	master *servers.Node // unless another one was made it unasked
}

// startWatched lets sentinels give a failover up before a freeze of all servers ends, which
// one of the replicas would hear of then.
func startWatched(ctx context.Context) (*Watched, error) {
	w, err := servers.StartWatched(ctx, 2, 2*time.Second)
	if err != nil {
		return nil, err
	}
	return &Watched{w, w.Nodes[0]}, nil
}

// Masters returns the address of the master.
func (s *Watched) Masters(ctx context.Context) ([]string, error) {
	m, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	return []string{m.Addr()}, nil
}

// Restart kills the master and its replicas and starts them again, with no data.
func (s *Watched) Restart(ctx context.Context) error {
	if err := s.Nodes.Restart(ctx); err != nil {
		return err
	}
	return s.Demote(ctx)
}

// CutReplication keeps what is written to the master from now on from its replicas.
func (s *Watched) CutReplication(ctx context.Context) error { return s.master.CutReplication(ctx) }

// Hush makes requests to write wait, and returns when the replicas have all that the
// master has acknowledged.
func (s *Watched) Hush(ctx context.Context) error {
	return s.master.Hush(ctx, s.Without(s.master))
}

// KillMaster returns when the master is dead and another one is in its place.
func (s *Watched) KillMaster(ctx context.Context) error {
	return errors.Join(s.master.Kill(), s.promoted(ctx))
}

// FreezeMaster stops the master and returns when another one is in its place. thaw lets
// the old one go on, which knows nothing of that until it is told: see Demote.
func (s *Watched) FreezeMaster(ctx context.Context) (thaw func() error, err error) {
	old := s.master
	if err := old.Stop(); err != nil {
		return nil, err
	}
	if err := s.promoted(ctx); err != nil {
		return nil, errors.Join(err, old.Cont())
	}
	return old.Cont, nil
}

// promoted waits for another master than the one so far.
func (s *Watched) promoted(ctx context.Context) error {
	m, err := s.Promoted(ctx, s.master)
	if err == nil {
		s.master = m
	}
	return err
}

// Demote makes all that are not the master follow it, as the sentinels would do some time
// later.
func (s *Watched) Demote(ctx context.Context) error { return s.Follow(ctx, s.master) }

// KillReplica kills one of the replicas.
func (s *Watched) KillReplica() error { return s.Without(s.master)[0].Kill() }

// Mend starts what is dead. See [Mender].
func (s *Watched) Mend(ctx context.Context) (unasked bool, err error) {
	if err := errors.Join(s.Sentinels.Revive(ctx), s.Revive(ctx)); err != nil {
		return false, err
	}
	m, err := s.Master(ctx)
	if err != nil {
		return false, err
	}
	unasked, s.master = m != s.master, m
	if err := s.Demote(ctx); err != nil {
		return unasked, err
	}
	return unasked, s.Settled(ctx)
}
