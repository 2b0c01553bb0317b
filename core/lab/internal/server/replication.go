package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// replicaUser is who replicas log in as at their master. A master without that user has
// no replicas, and whoever watches it does not mind.
const replicaUser = "replica"

// replicating are the arguments of a redis-server that may be a master and a replica.
var replicating = slices.Concat(forgetful, []string{
	"--user", replicaUser, "on", ">" + replicaUser, "+psync", "+replconf", "+ping",
	"--masteruser", replicaUser, "--masterauth", replicaUser,
	"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
})

// cut keeps a master's replicas from receiving what is written to it from now on.
func (n *node) cut(ctx context.Context) error {
	if err := n.do(ctx, "ACL", "DELUSER", replicaUser); err != nil { // which ends its connections
		return err
	}
	return until(ctx, "the replicas to be gone", func(ctx context.Context) bool { return n.serves(ctx, 0) })
}

// readmit ends what cut did.
func (n *node) readmit(ctx context.Context) error {
	return n.do(ctx, "ACL", "SETUSER", replicaUser, "on", ">"+replicaUser, "+psync", "+replconf", "+ping")
}

// serves reports whether a master has so many replicas, which have all they need to follow it.
func (n *node) serves(ctx context.Context, replicas int64) bool {
	info := n.client.Info(ctx, "replication").Val()
	return strings.Contains(info, fmt.Sprintf("connected_slaves:%d\r\n", replicas)) && strings.Count(info, "state=online") == int(replicas)
}

// hush has a master keep requests to write waiting, and returns when its replicas have
// all that it has: killed then, it has lost nothing that it acknowledged.
func (n *node) hush(ctx context.Context, replicas several) error {
	if err := n.do(ctx, "CLIENT", "PAUSE", (10 * time.Second).Milliseconds(), "WRITE"); err != nil {
		return err
	}
	all := n.info(ctx, "master_repl_offset")
	return until(ctx, "the replicas to have all", func(ctx context.Context) bool {
		return !slices.ContainsFunc(replicas, func(r *node) bool { return r.info(ctx, "slave_repl_offset") < all })
	})
}
