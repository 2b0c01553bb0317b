package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels of a [Watched] call its master.
const MasterName = "locks"

// Sentinels is how many there are, of which two agree on a failover.
const Sentinels = 3

// Watched is a master with two replicas, under the watch of sentinels. It is for one
// goroutine.
type Watched struct {
	several
	sentinels several
	master    *node // unless another one was made it unasked
}

// startWatched returns when the sentinels know each other and all else.
func startWatched(ctx context.Context) (s *Watched, err error) {
	s = &Watched{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for range 3 {
		n, err := startNode(ctx, replicating...)
		if err != nil {
			return s, err
		}
		s.several = append(s.several, n)
	}
	s.master = s.several[0]
	if err := s.follow(ctx); err != nil {
		return s, err
	}
	for range Sentinels {
		n, err := nodeIn(s.watch(ctx))
		if err != nil {
			return s, err
		}
		s.sentinels = append(s.sentinels, n)
	}
	return s, until(ctx, "the sentinels to know each other", s.settled)
}

// watch starts a sentinel, which writes what it learns into its own configuration.
func (s *Watched) watch(ctx context.Context) func(folder string) (*Server, error) {
	return func(folder string) (*Server, error) {
		host, port, err := net.SplitHostPort(s.master.Addr)
		if err != nil {
			return nil, err
		}
		config := filepath.Join(folder, "sentinel.conf")
		lines := []string{
			fmt.Sprintf("sentinel monitor %s %s %s %d", MasterName, host, port, Sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
			fmt.Sprintf("sentinel failover-timeout %s 2000", MasterName),
			fmt.Sprintf("sentinel parallel-syncs %s 2", MasterName),
		}
		if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return nil, err
		}
		return launchRedis(ctx, folder, config, "--sentinel")
	}
}

// Addrs returns the addresses of the sentinels, and then those of the others.
func (s *Watched) Addrs() []string { return slices.Concat(s.sentinels.Addrs(), s.several.Addrs()) }

// Close ends all.
func (s *Watched) Close() error { return errors.Join(s.sentinels.Close(), s.several.Close()) }

// Masters returns the address of the master.
func (s *Watched) Masters(ctx context.Context) ([]string, error) {
	m, err := s.agreed(ctx)
	if err != nil {
		return nil, err
	}
	return []string{m.Addr}, nil
}

// Restart kills the master and its replicas and starts them again, with no data.
func (s *Watched) Restart(ctx context.Context) error {
	s.several.die()
	if err := s.revive(ctx); err != nil {
		return err
	}
	return s.follow(ctx)
}

// CutReplication keeps what is written to the master from now on from its replicas.
func (s *Watched) CutReplication(ctx context.Context) error { return s.master.cut(ctx) }

// Hush has requests to write wait, and returns when the replicas have all that the
// master has acknowledged.
func (s *Watched) Hush(ctx context.Context) error {
	return s.master.hush(ctx, s.without(s.master))
}

// KillMaster returns when the master is dead and another one is in its place.
func (s *Watched) KillMaster(ctx context.Context) error {
	old := s.master
	old.die()
	return s.promoted(ctx, old)
}

// FreezeMaster stops the master and returns when another one is in its place. thaw has
// the old one go on, which knows nothing of that until it is told: see Demote.
func (s *Watched) FreezeMaster(ctx context.Context) (thaw func() error, err error) {
	old := s.master
	if err := old.Server.Stop(); err != nil {
		return nil, err
	}
	thaw = old.Server.Cont
	if err := s.promoted(ctx, old); err != nil {
		return nil, errors.Join(err, thaw())
	}
	return thaw, nil
}

// Demote has all that are not the master follow it, as the sentinels would do some time
// later.
func (s *Watched) Demote(ctx context.Context) error { return s.follow(ctx) }

// KillReplica kills one of the replicas.
func (s *Watched) KillReplica() { s.without(s.master)[0].die() }

// KillSentinel kills one of the sentinels.
func (s *Watched) KillSentinel() { s.sentinels[0].die() }

// Mend starts what is dead. See [Mender].
func (s *Watched) Mend(ctx context.Context) (unasked bool, err error) {
	if err := errors.Join(s.sentinels.revive(ctx), s.revive(ctx)); err != nil {
		return false, err
	}
	m, err := s.agreed(ctx)
	if err != nil {
		return false, err
	}
	unasked, s.master = m != s.master, m
	if err := s.follow(ctx); err != nil {
		return unasked, err
	}
	return unasked, until(ctx, "the sentinels to see all", s.settled)
}

// follow has all nodes follow the master, and returns when they do.
func (s *Watched) follow(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.master.Addr)
	if err != nil {
		return err
	}
	replicas := s.without(s.master)
	for _, n := range s.several {
		if err := n.readmit(ctx); err != nil {
			return err
		}
	}
	for _, r := range replicas {
		if r.told(ctx, "master_port") == port {
			continue
		}
		if err := r.do(ctx, "REPLICAOF", host, port); err != nil {
			return err
		}
	}
	return until(ctx, "the replicas to follow", func(ctx context.Context) bool { return s.master.serves(ctx, int64(len(replicas))) })
}

// promoted returns when another node than old is the master, and is to be written to.
func (s *Watched) promoted(ctx context.Context, old *node) error {
	return until(ctx, "a promotion", func(ctx context.Context) bool {
		m := s.seen(ctx)
		if m == nil || m == old || m.told(ctx, "role") != "master" {
			return false
		}
		s.master = m
		return true
	})
}

// agreed returns the master, when the sentinels agree on it.
func (s *Watched) agreed(ctx context.Context) (m *node, err error) {
	return m, until(ctx, "the sentinels to agree on a master", func(ctx context.Context) bool {
		m = s.seen(ctx)
		return m != nil
	})
}

// seen returns the node that all sentinels call the master, nil if they do not agree.
func (s *Watched) seen(ctx context.Context) *node {
	var m *node
	for _, watching := range s.sentinels {
		if watching.dead {
			continue
		}
		addr, err := watching.client.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		if err != nil || len(addr) != 2 {
			return nil
		}
		n := s.at(net.JoinHostPort(addr[0], addr[1]))
		if n == nil || m != nil && n != m {
			return nil
		}
		m = n
	}
	return m
}

// settled reports whether each sentinel sees the others, the master and its replicas, all
// of them well.
func (s *Watched) settled(ctx context.Context) bool {
	for _, watching := range s.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: watching.Addr, MaxRetries: -1})
		master, err := c.Master(ctx, MasterName).Result()
		replicas, rerr := c.Replicas(ctx, MasterName).Result()
		others, oerr := c.Sentinels(ctx, MasterName).Result()
		if errors.Join(err, rerr, oerr, c.Close()) != nil || master["flags"] != "master" || len(others) != Sentinels-1 || len(replicas) != len(s.several)-1 {
			return false
		}
		for _, r := range replicas {
			if r["flags"] != "slave" {
				return false
			}
		}
		for _, o := range others {
			if o["flags"] != "sentinel" {
				return false
			}
		}
	}
	return true
}
