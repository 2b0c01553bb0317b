package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/link"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/zklock"
)

// zookeeperSession is the time-out of sessions. A holder believes in its lease for two
// fifths of it at most, which is less than T.
const zookeeperSession = 3 * time.Second

// zookeeperStore has an ensemble, so that there is a leader to lose. A waiter that has died
// keeps its place for its TTL. Whatever a process leaves goes with its session at the latest,
// which lasts as long as T and E together. A server that is silent for half of that, which a
// busy one may be for less, is left for another.
var zookeeperStore = store{
	Kind: server.ZooKeeper, About: "an ensemble of three ZooKeeper servers, with sessions of 3 s", Shortest: time.Second, Longest: 1500 * time.Millisecond,
	Timeout: 1500 * time.Millisecond,
	Rules:   rules.With(1500*time.Millisecond, 1500*time.Millisecond, time.Second, 1500*time.Millisecond),
	Faults: []fault{
		keptRestart,
		{
			Name: "session-expiry", About: "a holder hears nothing from any server until its session has expired", Reach: holder,
			make: func(ctx context.Context, w *world, at int) error {
				defer w.links[at].Set(link.State{})
				w.links[at].Set(link.State{Hole: [2]bool{true, true}})
				return pass(ctx, zookeeperSession+time.Second)
			},
		},
		{
			Name: "leader-kill", About: "kill -9 of the leader, and its restart when another one has led for two TTLs", Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				leader, err := w.leader(ctx)
				if err != nil {
					return err
				}
				leader.Kill()
				return errors.Join(pass(ctx, 2*w.store.Longest), leader.Restart(ctx))
			},
		},
		{
			Name: "leader-pause", About: "SIGSTOP of the leader, for long enough that there is another one when it goes on", Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				leader, err := w.leader(ctx)
				if err != nil {
					return err
				}
				if err := leader.Stop(); err != nil {
					return err
				}
				return errors.Join(pass(ctx, 3*w.store.Longest), leader.Cont())
			},
		},
		{
			Name: "flush", About: "all leases and places are deleted by hand", Lossy: true, Reach: all,
			make: func(ctx context.Context, w *world, _ int) error {
				return persist(ctx, func() error { return deleteNodes(w.server.Addrs()) })
			},
		},
	},
	Mutants: []string{"kept-token", "undead-renewal", "lost-wake-up", "open-to-all", "deaf-to-loss"},
	open: func(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
		routes, err := link.ParseRoutes(addr)
		if err != nil {
			return nil, nil, err
		}
		locks := zklock.New(routes.Links(), zklock.WithSessionTimeout(zookeeperSession))
		return bug.Wrap(record(locks), nil), func() error { return nil }, nil
	},
}

// leader returns the one of an ensemble.
func (w *world) leader(ctx context.Context) (leader *server.Server, err error) {
	err = persist(ctx, func() error {
		if leader = w.server.(*server.Server).Leader(); leader == nil {
			return errors.New("no server leads")
		}
		return nil
	})
	return leader, err
}

// deleteNodes deletes what everybody has in all keys.
func deleteNodes(addrs []string) error {
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		return err
	}
	defer func() {
		conn.Close()
		for range events { // until the client's goroutines have ended
		}
	}()
	keys, _, err := conn.Children(zklock.DefaultRoot)
	if err != nil {
		return err
	}
	for _, key := range keys {
		key = zklock.DefaultRoot + "/" + key
		nodes, _, err := conn.Children(key)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		for _, node := range nodes {
			if err := conn.Delete(key+"/"+node, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	}
	return nil
}

// quiet drops the client library's messages.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
