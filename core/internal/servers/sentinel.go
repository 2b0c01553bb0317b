package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit"
)

// MasterName is what sentinels call the master.
const MasterName = "locks"

// Sentinels is how many watch a master, of which two agree on a failover.
const Sentinels = 3

// Watched is a master with replicas, under the watch of sentinels. It is for one goroutine.
type Watched struct {
	Nodes     // without the sentinels; the master of the beginning first
	Sentinels Nodes
}

// StartWatched starts a master with that many replicas and returns when the sentinels know
// each other and all of them. A failover that takes longer than limit is given up, and tried
// again after twice that time. More arguments are passed to the master and the replicas.
func StartWatched(ctx context.Context, replicas int, limit time.Duration, args ...string) (*Watched, error) {
	w := &Watched{}
	if err := w.start(ctx, replicas, limit, args); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Watched) start(ctx context.Context, replicas int, limit time.Duration, args []string) error {
	for range 1 + replicas {
		n, err := StartRedis(ctx, Options{Args: slices.Concat(replicating, args)})
		if err != nil {
			return err
		}
		w.Nodes = append(w.Nodes, n)
	}
	if err := w.Follow(ctx, w.Nodes[0]); err != nil {
		return err
	}
	for range Sentinels {
		n, err := StartSentinel(ctx, w.Nodes[0], 0, limit)
		if err != nil {
			return err
		}
		w.Sentinels = append(w.Sentinels, n)
	}
	return w.Settled(ctx)
}

// StartSentinel starts a sentinel that has known the master since that epoch. It writes what
// it learns into its own configuration. For limit see [StartWatched].
func StartSentinel(ctx context.Context, master *Node, epoch int, limit time.Duration) (*Node, error) {
	return startNode(ctx, "redis-server", Options{}, func(n *Node) ([]string, error) {
		config := filepath.Join(n.folder, "sentinel.conf")
		lines := []string{
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", MasterName, master.ports[0], Sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
			fmt.Sprintf("sentinel failover-timeout %s %d", MasterName, limit.Milliseconds()),
			fmt.Sprintf("sentinel parallel-syncs %s 2", MasterName),
			fmt.Sprintf("sentinel config-epoch %s %d", MasterName, epoch),
		}
		return []string{config, "--sentinel"}, os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	})
}

// Addrs returns the addresses of the sentinels, and then those of the others.
func (w *Watched) Addrs() []string { return slices.Concat(w.Sentinels.Addrs(), w.Nodes.Addrs()) }

// Close ends all.
func (w *Watched) Close() error { return errors.Join(w.Sentinels.Close(), w.Nodes.Close()) }

// Follow makes all nodes that serve follow the master, and returns when they do.
func (w *Watched) Follow(ctx context.Context, master *Node) error {
	replicas := w.Without(master)
	for _, n := range w.Nodes {
		if err := n.Readmit(ctx); err != nil {
			return err
		}
	}
	for _, r := range replicas {
		if r.Told(ctx, "replication", "master_port") == master.ports[0] {
			continue
		}
		if err := r.do(ctx, "REPLICAOF", "127.0.0.1", master.ports[0]); err != nil {
			return err
		}
	}
	return testkit.Condition(ctx, "the replicas to follow", func() bool { return master.supplies(ctx, len(replicas)) })
}

// Master returns the node that all sentinels call the master, when they agree on it.
func (w *Watched) Master(ctx context.Context) (m *Node, err error) {
	err = testkit.Condition(ctx, "the sentinels to agree on a master", func() bool {
		m = w.seen(ctx)
		return m != nil
	})
	return m, err
}

// FailOver makes the sentinels promote a replica although the master is well, and returns it.
func (w *Watched) FailOver(ctx context.Context) (*Node, error) {
	old, err := w.Master(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.Sentinels[0].do(ctx, "SENTINEL", "FAILOVER", MasterName); err != nil {
		return nil, err
	}
	return w.Promoted(ctx, old)
}

// Promoted returns the master that has replaced old, once it is to be written to.
func (w *Watched) Promoted(ctx context.Context, old *Node) (m *Node, err error) {
	err = testkit.Condition(ctx, "a promotion", func() bool {
		m = w.seen(ctx)
		return m != nil && m != old && m.Told(ctx, "replication", "role") == "master"
	})
	return m, err
}

// seen returns the node that all sentinels that serve call the master, nil if they do not
// agree.
func (w *Watched) seen(ctx context.Context) (m *Node) {
	for _, watching := range w.Sentinels.Serving() {
		addr := list(watching.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)) // host and port
		n := w.by(func(n *Node) bool { return len(addr) == 2 && addr[0] == "127.0.0.1" && addr[1] == n.ports[0] })
		if n == nil || m != nil && n != m {
			return nil
		}
		m = n
	}
	return m
}

// Settled returns when each sentinel sees the others, the master and its replicas, all of
// them well.
func (w *Watched) Settled(ctx context.Context) error {
	return testkit.Condition(ctx, "the sentinels to see all", func() bool {
		for _, watching := range w.Sentinels {
			master, err := watching.Do(ctx, "SENTINEL", "MASTER", MasterName)
			if err != nil || fields(master)["flags"] != "master" ||
				!all(list(watching.Do(ctx, "SENTINEL", "REPLICAS", MasterName)), len(w.Nodes)-1, "slave") ||
				!all(list(watching.Do(ctx, "SENTINEL", "SENTINELS", MasterName)), Sentinels-1, "sentinel") {
				return false
			}
		}
		return true
	})
}

// all reports whether there are so many, which have these flags alone.
func all(of []any, n int, flags string) bool {
	return len(of) == n && !slices.ContainsFunc(of, func(o any) bool { return fields(o)["flags"] != flags })
}

// fields are an answer of names and values in turn.
func fields(answer any) map[any]any {
	m := make(map[any]any)
	for pair := range slices.Chunk(list(answer, nil), 2) {
		m[pair[0]] = pair[len(pair)-1]
	}
	return m
}
