package main

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/servers"
	"github.com/lockaround/lockaround/core/lab/faults/link"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
)

// Stores of several servers. A failover takes two to four seconds: with TTLs longer than
// that there are holders when another master takes over.
var (
	sentinelStore = store{
		Kind: server.Sentinel, About: "a Redis master with two replicas under the watch of three sentinels",
		Shortest: 3 * time.Second, Longest: 4 * time.Second, Timeout: 500 * time.Millisecond,
		Rules:  rules.With(4*time.Second, 3*time.Second, time.Second, 1500*time.Millisecond),
		Faults: sentinelFaults, open: openSentinel,
	}
	clusterStore = store{
		Kind: server.Cluster, About: "a Redis Cluster of three masters with a replica each",
		Shortest: 3 * time.Second, Longest: 4 * time.Second, Timeout: 500 * time.Millisecond,
		Rules:  rules.With(4*time.Second, 3*time.Second, time.Second, 1500*time.Millisecond),
		Faults: clusterFaults, open: openCluster,
	}
	quorumStore = store{
		Kind: server.Quorum, About: "five independent Redis servers, of which three decide",
		Shortest: 600 * time.Millisecond, Longest: time.Second, Timeout: 500 * time.Millisecond, Delay: restartDelay,
		Rules:  rules.With(time.Second, time.Second, time.Second, 1500*time.Millisecond).From(restartDelay),
		Faults: quorumFaults, Mutants: quorumMutants, open: openQuorum,
	}
)

// quorumMutants show in nearly every run. Of the others, open-to-readers, one-too-many and
// restless break what a quorum does not offer: it has neither readers nor semaphores, and
// keeps no strict order. late-deadline and deaf-to-loss seldom show: it takes more than one
// server at a time to be late, or to lose a lease.
var quorumMutants = []string{
	"shared-token", "kept-token", "undead-renewal", "lost-wake-up", "open-to-all", "forgotten-key", "short-keep", "hasty-return",
}

// restartDelay keeps a server of a quorum that has lost its data from voting until the
// longest lease that it may have voted for is over.
const restartDelay = 1100 * time.Millisecond

func openSentinel(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	routes, err := link.ParseRoutes(addr)
	if err != nil {
		return nil, nil, err
	}
	client := redislock.NewFailoverClient(&redis.FailoverOptions{
		MasterName: servers.MasterName, SentinelAddrs: routes.Servers[:servers.Sentinels], Dialer: routes.Dial,
	})
	return bug.Wrap(record(redislock.New(client)), client), client.Close, nil
}

func openCluster(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	routes, err := link.ParseRoutes(addr)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: routes.Servers, Dialer: routes.Dial})
	return bug.Wrap(record(redislock.New(client)), client), client.Close, nil
}

func openQuorum(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	routes, err := link.ParseRoutes(addr)
	if err != nil {
		return nil, nil, err
	}
	var nodes []*redis.Client
	for _, to := range routes.Servers {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: to, Dialer: routes.Dial}))
	}
	disconnect := func() error {
		var errs []error
		for _, n := range nodes {
			errs = append(errs, n.Close())
		}
		return errors.Join(errs...)
	}
	delay := restartDelay
	if bug.Hasty {
		delay = 0
	}
	return bug.Wrap(record(redlock.New(nodes, redlock.WithRestartDelay(delay))), nil), disconnect, nil
}
