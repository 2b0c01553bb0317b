package main

import (
	"context"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// etcd, as in the package's example: a session for each process, with its default TTL
// of 60 s, and a mutex for each call. Goroutines of one session do not exclude each
// other, so that each has a session of its own if they share a key.
// https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#example-Mutex.Lock
type etcdProcess struct {
	client *etcd.Client
	idle   chan *concurrency.Session // those that nobody uses; only one if nobody shares a key
	shared bool                      // more than one may use a session
}

func openEtcd(addr string, s Scenario) (Process, error) {
	client, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	n := s.Callers
	if s.Own {
		n = 1
	}
	p := &etcdProcess{client, make(chan *concurrency.Session, n), s.Own}
	for range n {
		session, err := concurrency.NewSession(client)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.idle <- session
	}
	return p, nil
}

func (p *etcdProcess) Lock(ctx context.Context, key string) (func() error, error) {
	session := <-p.idle
	if p.shared {
		p.idle <- session
	}
	mutex := concurrency.NewMutex(session, "/"+key)
	if err := mutex.Lock(ctx); err != nil {
		p.giveBack(session)
		return nil, err
	}
	return func() error {
		defer p.giveBack(session)
		return mutex.Unlock(context.Background())
	}, nil
}

func (p *etcdProcess) giveBack(session *concurrency.Session) {
	if !p.shared {
		p.idle <- session
	}
}

func (p *etcdProcess) Close() {
	for len(p.idle) > 0 {
		_ = (<-p.idle).Close() // the process ends
	}
	_ = p.client.Close()
}
