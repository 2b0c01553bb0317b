package redistest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// MasterName is what the sentinels call the master.
const MasterName = "locks"

// The user as which a replica logs in at its master.
const replicationUser = "replication"

// Sentinel is a master with replicas under the watch of three sentinels, two of
// which agree on a failover. Everything in it ends with the test. Its methods
// fail the test when they cannot do what they say, and are for one goroutine.
type Sentinel struct {
	t         testing.TB
	sentinels []*Server
	nodes     map[string]*Server // by address
}

// StartSentinel starts a master with that many replicas and returns when the
// sentinels know each other and all of them. More arguments are passed to the
// master and the replicas.
func StartSentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	args = append([]string{
		"--masteruser", replicationUser, "--masterauth", replicationUser,
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}, args...)
	s := &Sentinel{t: t, nodes: make(map[string]*Server)}
	master := Start(t, args...)
	s.admit(master)
	host, port, _ := net.SplitHostPort(master.Addr())
	for range replicas {
		s.admit(Start(t, slices.Concat(args, []string{"--replicaof", host + " " + port})...))
	}
	s.until("replication", func(ctx context.Context) bool { return s.linked(ctx, master, replicas) })
	for range 3 {
		s.sentinels = append(s.sentinels, Watch(t, master, 0))
	}
	s.until("the sentinels to know each other", func(ctx context.Context) bool { return s.complete(ctx, replicas) })
	return s
}

// Nodes returns the master and the replicas.
func (s *Sentinel) Nodes() []*Server { return slices.Collect(maps.Values(s.nodes)) }

// Readmit ends what CutReplication did.
func (s *Sentinel) Readmit(node *Server) { s.admit(node) }

// admit lets replicas log in at a node, whoever is the master.
func (s *Sentinel) admit(node *Server) {
	s.t.Helper()
	s.do(node, "ACL", "SETUSER", replicationUser, "on", ">"+replicationUser, "+psync", "+replconf", "+ping")
	s.nodes[node.Addr()] = node
}

// Watch starts a sentinel that has known the master since that epoch. It rewrites its own
// configuration file.
func Watch(t testing.TB, master *Server, epoch int) *Server {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := []string{
		fmt.Sprintf("sentinel monitor %s %s %s 2", MasterName, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
		fmt.Sprintf("sentinel failover-timeout %s 3000", MasterName),
		fmt.Sprintf("sentinel parallel-syncs %s 1", MasterName),
		fmt.Sprintf("sentinel config-epoch %s %d", MasterName, epoch),
	}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return start(t, nil, []string{config, "--sentinel"}, nil, false)
}

// Addrs returns the sentinels' addresses.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return addrs
}

// Master returns the server that all sentinels call the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var master *Server
	s.until("the sentinels to agree on a master", func(ctx context.Context) bool {
		for i, sentinel := range s.sentinels {
			got := s.masterOf(ctx, sentinel)
			if got == nil || i > 0 && got != master {
				return false
			}
			master = got
		}
		return true
	})
	return master
}

// CutReplication keeps the replicas of master from receiving what is written to
// it, and the sentinels from minding: they promote a replica that has been
// without its master for less than 10 s.
func (s *Sentinel) CutReplication(master *Server) {
	s.t.Helper()
	s.do(master, "ACL", "DELUSER", replicationUser) // which ends its connections
	s.until("the replicas to be gone", func(ctx context.Context) bool { return s.linked(ctx, master, 0) })
}

// Replicated returns when at least one replica has all that was written to
// master so far.
func (s *Sentinel) Replicated(master *Server) {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: master.Addr(), ReadTimeout: -1})
	defer func() { _ = c.Close() }()
	conn := c.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Set(s.t.Context(), "replicated", 1, 0).Err(); err != nil {
		s.t.Fatal(err)
	}
	if n, err := conn.Wait(s.t.Context(), 1, time.Minute).Result(); err != nil || n < 1 {
		s.t.Fatalf("wait for a replica: %d, %v", n, err)
	}
}

// Failover has the sentinels promote a replica although the master is well, and
// returns the new master.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	old := s.Master()
	s.do(s.sentinels[0], "SENTINEL", "FAILOVER", MasterName)
	return s.Promoted(old)
}

// Promoted returns the master that has replaced old, once it is writable.
func (s *Sentinel) Promoted(old *Server) *Server {
	s.t.Helper()
	s.until("a promotion", func(ctx context.Context) bool {
		for _, sentinel := range s.sentinels {
			if m := s.masterOf(ctx, sentinel); m == nil || m == old {
				return false
			}
		}
		return true
	})
	return s.Master()
}

// Demoted returns when node is a replica and has caught up with its master.
func (s *Sentinel) Demoted(node *Server) {
	s.t.Helper()
	s.until("the old master to become a replica", func(ctx context.Context) bool {
		info := s.replication(ctx, node)
		return strings.Contains(info, "role:slave\r\n") && strings.Contains(info, "master_link_status:up\r\n")
	})
}

// masterOf returns the master as one sentinel sees it, nil if it does not say.
func (s *Sentinel) masterOf(ctx context.Context, sentinel *Server) *Server {
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	defer func() { _ = c.Close() }()
	addr, err := c.GetMasterAddrByName(ctx, MasterName).Result()
	if err != nil || len(addr) != 2 {
		return nil
	}
	return s.nodes[net.JoinHostPort(addr[0], addr[1])]
}

// complete reports whether each sentinel knows the others and the replicas.
func (s *Sentinel) complete(ctx context.Context, replicas int) bool {
	for _, sentinel := range s.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
		seen, err := c.Master(ctx, MasterName).Result()
		_ = c.Close()
		if err != nil || seen["flags"] != "master" ||
			seen["num-slaves"] != fmt.Sprint(replicas) || seen["num-other-sentinels"] != fmt.Sprint(len(s.sentinels)-1) {
			return false
		}
	}
	return true
}

// linked reports whether node serves exactly n replicas.
func (s *Sentinel) linked(ctx context.Context, node *Server, n int) bool {
	info := s.replication(ctx, node)
	return strings.Contains(info, fmt.Sprintf("connected_slaves:%d\r\n", n)) && strings.Count(info, "state=online") == n
}

func (s *Sentinel) replication(ctx context.Context, node *Server) string {
	c := redis.NewClient(&redis.Options{Addr: node.Addr()})
	defer func() { _ = c.Close() }()
	return c.Info(ctx, "replication").Val()
}

func (s *Sentinel) do(node *Server, words ...string) {
	s.t.Helper()
	if answer, err := node.Do(words...); err != nil || strings.HasPrefix(answer, "-") {
		s.t.Fatalf("%s: %s, %v", strings.Join(words[:2], " "), answer, err)
	}
}

func (s *Sentinel) until(what string, holds func(context.Context) bool) {
	s.t.Helper()
	until(s.t, what, holds)
}
