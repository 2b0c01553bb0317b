package servers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/internal/testkit"
)

// replicaUser is who replicas log in as at their master. A master without that user has
// no replicas, and whoever watches it does not mind: Sentinels promote a replica that has
// been without its master for less than 10 s.
const replicaUser = "replica"

var replicaRights = []string{"on", ">" + replicaUser, "+psync", "+replconf", "+ping"}

// replicating are the arguments of a redis-server that may be a master and a replica.
var replicating = slices.Concat([]string{"--user", replicaUser}, replicaRights, []string{
	"--masteruser", replicaUser, "--masterauth", replicaUser,
	"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
})

// CutReplication keeps a master's replicas from receiving what is written to it from now on.
func (n *Node) CutReplication(ctx context.Context) error {
	if err := n.do(ctx, "ACL", "DELUSER", replicaUser); err != nil { // which ends its connections
		return err
	}
	return testkit.Condition(ctx, "the replicas to be gone", func() bool { return n.supplies(ctx, 0) })
}

// Readmit ends what [Node.CutReplication] did.
func (n *Node) Readmit(ctx context.Context) error {
	words := []any{"ACL", "SETUSER", replicaUser}
	for _, w := range replicaRights {
		words = append(words, w)
	}
	return n.do(ctx, words...)
}

// Hush makes requests to write wait for ten seconds, and returns when the replicas have all
// that this master has: killed then, it has lost nothing that it acknowledged.
func (n *Node) Hush(ctx context.Context, replicas Nodes) error {
	if err := n.do(ctx, "CLIENT", "PAUSE", (10 * time.Second).Milliseconds(), "WRITE"); err != nil {
		return err
	}
	return n.Replicated(ctx, replicas)
}

// Replicated returns when the replicas have all that was written to this master so far.
func (n *Node) Replicated(ctx context.Context, replicas Nodes) error {
	all := n.count(ctx, "master_repl_offset")
	return testkit.Condition(ctx, "the replicas to have all", func() bool {
		return all >= 0 && !slices.ContainsFunc(replicas, func(r *Node) bool { return r.count(ctx, "slave_repl_offset") < all })
	})
}

// Demoted returns when the node is a replica and has caught up with its master.
func (n *Node) Demoted(ctx context.Context) error {
	return testkit.Condition(ctx, "the old master to become a replica", func() bool {
		return n.Told(ctx, "replication", "role") == "slave" && n.Told(ctx, "replication", "master_link_status") == "up"
	})
}

// supplies reports whether a master has so many replicas, which have all they need to follow it.
func (n *Node) supplies(ctx context.Context, replicas int) bool {
	info := text(n.Do(ctx, "INFO", "replication"))
	return strings.Contains(info, fmt.Sprintf("connected_slaves:%d\r\n", replicas)) && strings.Count(info, "state=online") == replicas
}

// count returns a number of INFO replication, -1 if there is none.
func (n *Node) count(ctx context.Context, name string) int64 {
	number, err := strconv.ParseInt(n.Told(ctx, "replication", name), 10, 64)
	if err != nil {
		return -1
	}
	return number
}
