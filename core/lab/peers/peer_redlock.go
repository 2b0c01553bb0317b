package main

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/redlock"
)

// redlock, with the defaults of lockaround and a client for each server.
func openRedlock(addr string, s Scenario) (Process, error) {
	nodes := clients(addr)
	p, err := newEngineProcess(redlock.New(nodes), s, func() error { return closeAll(nodes) })
	if err != nil {
		return nil, errors.Join(err, closeAll(nodes))
	}
	return p, nil
}

// clients returns a client for each of the addresses.
func clients(addrs string) (all []*redis.Client) {
	for addr := range strings.SplitSeq(addrs, ",") {
		all = append(all, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return all
}

func closeAll(clients []*redis.Client) (err error) {
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}
