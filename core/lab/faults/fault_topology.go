package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/redislock"
)

// lostWrites is a failover of a Sentinel's master, or of a Cluster's.
const lostWrites = "lost-writes"

var sentinelFaults = []fault{
	{
		Name: lostWrites, Lossy: true, Reach: all,
		About: "the replicas get nothing any more; when somebody has had a lock since for 100 ms, kill -9 of the master, and the failover to a replica",
		make: on(func(ctx context.Context, w *world, s *server.Watched) error {
			if err := errors.Join(s.CutReplication(ctx), w.holdOn(ctx)); err != nil {
				return err
			}
			return s.KillMaster(ctx)
		}),
	},
	{
		Name: "failover", Reach: all,
		About: "kill -9 of the master when its replicas have all, and the failover to one of them",
		make: on(func(ctx context.Context, _ *world, s *server.Watched) error {
			if err := s.Hush(ctx); err != nil {
				return err
			}
			return s.KillMaster(ctx)
		}),
	},
	{
		Name: "frozen-master", Lossy: true, Reach: all,
		About: "SIGSTOP of the master until another one is in its place, and for a second it goes on as one too",
		make: on(func(ctx context.Context, _ *world, s *server.Watched) error {
			thaw, err := s.FreezeMaster(ctx)
			if err != nil {
				return err
			}
			return errors.Join(thaw(), pass(ctx, time.Second), s.Demote(ctx))
		}),
	},
	{
		Name: "replica-kill", About: "kill -9 of a replica, which is back after two seconds",
		make: on(func(ctx context.Context, _ *world, s *server.Watched) error {
			return errors.Join(s.KillReplica(), pass(ctx, 2*time.Second))
		}),
	},
	{
		Name: "sentinel-kill", About: "kill -9 of a sentinel, which is back after two seconds",
		make: on(func(ctx context.Context, _ *world, s *server.Watched) error {
			return errors.Join(s.Sentinels[0].Kill(), pass(ctx, 2*time.Second))
		}),
	},
}

var clusterFaults = []fault{
	{
		Name:  "migration",
		About: "the slot of a key that somebody holds moves to another master and back, five times",
		make: on(func(ctx context.Context, w *world, c *server.Sharded) error {
			slot, err := w.slot(ctx, c)
			for range 5 {
				err = errors.Join(err, c.MoveAway(ctx, slot))
			}
			return err
		}),
	},
	{
		Name: "handed-over", Reach: all,
		About: "CLUSTER FAILOVER: a replica takes its master's place, with all that it has",
		make: on(func(ctx context.Context, w *world, c *server.Sharded) error {
			slot, err := w.slot(ctx, c)
			if err != nil {
				return err
			}
			return c.FailOver(ctx, slot)
		}),
	},
	{
		Name: "master-kill", Reach: all,
		About: "kill -9 of a master when its replica has all, which takes its place",
		make: on(func(ctx context.Context, w *world, c *server.Sharded) error {
			slot, err := w.slot(ctx, c)
			if err != nil {
				return err
			}
			if err := c.Hush(ctx, slot); err != nil {
				return err
			}
			return c.KillMaster(ctx, slot)
		}),
	},
	{
		Name: lostWrites, Lossy: true, Reach: all,
		About: "a master's replica gets nothing any more; when somebody has had a lock since for 100 ms, kill -9 of the master, and the failover to the replica",
		make: on(func(ctx context.Context, w *world, c *server.Sharded) error {
			slot, err := w.slot(ctx, c)
			if err != nil {
				return err
			}
			if err := errors.Join(c.CutReplication(ctx, slot), w.holdOn(ctx)); err != nil {
				return err
			}
			return c.KillMaster(ctx, slot)
		}),
	},
	{
		Name: "replica-kill", About: "kill -9 of a replica, which is back after two seconds",
		make: on(func(ctx context.Context, w *world, c *server.Sharded) error {
			slot, err := w.slot(ctx, c)
			if err != nil {
				return err
			}
			return errors.Join(c.KillReplica(ctx, slot), pass(ctx, 2*time.Second))
		}),
	},
}

var quorumFaults = []fault{
	{
		Name: "two-dead", About: "kill -9 of two servers of five, which come back empty after two TTLs",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			return errors.Join(v.Nodes[0].Kill(), v.Nodes[3].Kill(), pass(ctx, 2*w.store.Longest))
		}),
	},
	{
		Name: "one-empty", About: "kill -9 of a server, which comes back empty at once",
		make: on(func(ctx context.Context, _ *world, v *server.Voters) error {
			return v.Nodes[1:2].Restart(ctx)
		}),
	},
	{
		Name: "one-stalled", About: "SIGSTOP of a server, for two TTLs",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			return errors.Join(v.Nodes[2].Stop(), pass(ctx, 2*w.store.Longest), v.Nodes[2].Cont())
		}),
	},
	{
		Name:  "returned-needed",
		About: "kill -9 of two servers; one comes back empty and may vote again when the restart delay is over; then SIGSTOP of a third, so that the returned one is needed, for a TTL",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			if err := errors.Join(v.Nodes[1].Kill(), v.Nodes[4].Kill(), pass(ctx, w.store.Longest/2)); err != nil {
				return err
			}
			// The delay begins when somebody asks it for a vote, which is soon.
			if err := errors.Join(v.Nodes[1].Revive(ctx), pass(ctx, w.store.Delay*6/5)); err != nil {
				return err
			}
			return errors.Join(v.Nodes[2].Stop(), pass(ctx, w.store.Longest), v.Nodes[2].Cont())
		}),
	},
	{
		// Forward, it frees votes of which a lease may need each.
		Name: "one-clock", Lossy: true, Clock: true,
		About: "the wall clock of a server jumps an hour back, and forward again after two TTLs",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			if err := v.Nodes[2].Jump(-hour); err != nil {
				return err
			}
			return errors.Join(pass(ctx, 2*w.store.Longest), v.Nodes[2].Jump(hour))
		}),
	},
	{
		Name: "three-dead", Reach: all,
		About: "kill -9 of three servers of five, which come back empty after a TTL",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			return errors.Join(v.Nodes[:3].Kill(), pass(ctx, w.store.Longest), w.mend(ctx), pass(ctx, w.store.Delay))
		}),
	},
	{
		Name: "three-empty", Reach: all,
		About: "kill -9 of three servers of five, which come back empty at once",
		make: on(func(ctx context.Context, w *world, v *server.Voters) error {
			return errors.Join(v.Nodes[:3].Kill(), w.mend(ctx), pass(ctx, w.store.Delay))
		}),
	},
}

// on is what a fault does to several servers of a kind.
func on[S server.Store](what func(context.Context, *world, S) error) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, _ int) error {
		s, ok := w.server.(S)
		if !ok {
			return fmt.Errorf("the fault is about a %T, and the store is a %T", s, w.server)
		}
		return what(ctx, w, s)
	}
}

// holdOn waits, not for long, for somebody to have got a lock since it was called, and to
// have had it for a while, so that it is not about to be released.
func (w *world) holdOn(ctx context.Context) error {
	const patience, length = 5 * time.Second, 100 * time.Millisecond
	for began := time.Now(); time.Since(began) < patience && w.resource.EnteredSince(began) < length; {
		if err := pass(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// slot is that of a key that somebody holds, if anybody does.
func (w *world) slot(ctx context.Context, c *server.Sharded) (int, error) {
	who, err := w.inside(ctx, 0, everybody)
	if err != nil {
		return 0, err
	}
	if who.Key == "" {
		who.Key = keyName(0)
	}
	return c.Slot(ctx, redislock.KeyPrefix+"{"+namespace+"/"+who.Key+"}")
}

func everybody(int) bool { return true }
