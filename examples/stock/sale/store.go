package sale

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redlock"
)

// Store is where locks can be kept.
type Store struct {
	Name    string // as -store says it
	Address string // what -at is; empty if the store has no address

	// Open returns a driver for the store at that address, and what closes its
	// connection when the driver is not used any more.
	Open func(ctx context.Context, at string) (d driver.Driver, shut func() error, err error)
}

// Memory keeps locks in the process.
var Memory = Store{Name: "memory", Open: func(context.Context, string) (driver.Driver, func() error, error) {
	return memlock.New(), nothing, nil
}}

// Redis keeps locks in one Redis server.
var Redis = Store{Name: "redis", Address: "host:port", Open: func(_ context.Context, at string) (driver.Driver, func() error, error) {
	if err := checkAddr(at); err != nil {
		return nil, nil, fmt.Errorf("-at is %q: %w; host:port is right", at, err)
	}
	client := redis.NewClient(&redis.Options{Addr: at})
	return redislock.New(client), client.Close, nil
}}

// Redlock keeps locks in several independent Redis servers, by majority.
var Redlock = Store{Name: "redlock", Address: "host:port,host:port,host:port of independent Redis masters, 3 or more", Open: func(_ context.Context, at string) (driver.Driver, func() error, error) {
	var nodes []*redis.Client
	shut := func() error {
		var err error
		for _, n := range nodes {
			err = errors.Join(err, n.Close())
		}
		return err
	}
	for addr := range strings.SplitSeq(at, ",") {
		if err := checkAddr(addr); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("-at has the address %q: %w; host:port is right", addr, err), shut())
		}
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return redlock.New(nodes), shut, nil
}}

func nothing() error { return nil }

// find returns the store of that name, nil if the name is empty.
func find(stores []Store, name, at string) (*Store, error) {
	if name == "" {
		if at != "" {
			return nil, errors.New("-at is the address of a store; say which by -store")
		}
		return nil, nil
	}
	i := slices.IndexFunc(stores, func(s Store) bool { return s.Name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("-store is %q; these are possible:\n%s", name, list(stores))
	case stores[i].Address != "" && at == "":
		return nil, fmt.Errorf("-store %s needs -at: %s", name, stores[i].Address)
	case stores[i].Address == "" && at != "":
		return nil, fmt.Errorf("-store %s has no address; leave -at out", name)
	}
	return &stores[i], nil
}

// list is the stores, a line each.
func list(stores []Store) string {
	lines := make([]string, len(stores))
	for i, s := range stores {
		lines[i] = strings.TrimRight("  "+s.Name+"  "+s.Address, " ")
	}
	return strings.Join(lines, "\n")
}
