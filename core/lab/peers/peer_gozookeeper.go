package main

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// go-zookeeper's Lock, with a session for each process and a lock for each call. It knows no
// context and no tokens. A lock lasts as long as the session.
// https://pkg.go.dev/github.com/go-zookeeper/zk#Lock
type goZooKeeperProcess struct {
	conn *zk.Conn
	acl  []zk.ACL
}

func openGoZooKeeper(addr string, _ Scenario) (Process, error) {
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return &goZooKeeperProcess{conn, zk.WorldACL(zk.PermAll)}, nil
}

func (p *goZooKeeperProcess) Lock(_ context.Context, key string) (func() error, error) {
	lock := zk.NewLock(p.conn, "/locks/"+key, p.acl)
	if err := lock.Lock(); err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

func (p *goZooKeeperProcess) Close() { p.conn.Close() }
