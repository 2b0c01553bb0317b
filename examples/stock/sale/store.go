package sale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"

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

// place says where Redis is. The zero value is no Redis at all.
type place struct {
	list   string // as on the command line: comma-separated
	addrs  []string
	kind   kind
	master string // the name that the Sentinels know it by
}

// kind is what the addresses of a place are addresses of.
type kind int

const (
	nowhere  kind = iota
	single        // one server
	cluster       // some of a Cluster's nodes; they know the others
	sentinel      // some of the Sentinels that watch a master
)

// parsePlace reads the values of -redis and -sentinel. A comma makes a list,
// also behind the only address.
func parsePlace(list, master string) (place, error) {
	if list == "" {
		if master != "" {
			return place{}, errors.New("-sentinel needs -redis: the Sentinels' addresses, host:port,host:port")
		}
		return place{}, nil
	}
	if strings.ContainsFunc(master, unicode.IsSpace) {
		return place{}, fmt.Errorf("-sentinel is %q; the name of a master has no spaces", master)
	}
	if strings.ContainsFunc(list, unicode.IsSpace) {
		return place{}, fmt.Errorf("-redis is %q; write the addresses without spaces: host:port,host:port", list)
	}
	p := place{list: list, kind: single, master: master}
	addrs, ended := strings.CutSuffix(list, ",")
	p.addrs = strings.Split(addrs, ",")
	for i, addr := range p.addrs {
		if addr == "" {
			return place{}, fmt.Errorf("-redis is %q; address %d of the list is empty, host:port is right", list, i+1)
		}
		if err := checkAddr(addr); err != nil {
			return place{}, fmt.Errorf("-redis has the address %q: %w; host:port is right, such as 127.0.0.1:6379", addr, err)
		}
		if slices.Contains(p.addrs[:i], addr) {
			return place{}, fmt.Errorf("-redis has the address %q twice; name each server once", addr)
		}
	}
	switch {
	case master != "":
		p.kind = sentinel
	case ended || len(p.addrs) > 1:
		p.kind = cluster
	}
	return p, nil
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if e := new(net.AddrError); errors.As(err, &e) {
		return errors.New(e.Err)
	}
	if err != nil {
		return err
	}
	if host == "" {
		return errors.New("the host is missing")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is no port; from 1 to 65535 are possible", port)
	}
	return nil
}

// client connects to the place when it is first used, by dial unless that is nil. Nowhere
// has no client.
func (p place) client(dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
	switch p.kind {
	case cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.addrs, Dialer: dial})
	case sentinel:
		return redislock.NewFailoverClient(&redis.FailoverOptions{MasterName: p.master, SentinelAddrs: p.addrs, Dialer: dial})
	default:
		return redis.NewClient(&redis.Options{Addr: p.addrs[0], Dialer: dial})
	}
}

func (p place) String() string {
	addrs := strings.Join(p.addrs, ", ")
	switch p.kind {
	case nowhere:
		return "in this process"
	case cluster:
		return "in the Redis Cluster at " + addrs
	case sentinel:
		return fmt.Sprintf("in the Redis %q of the Sentinels at %s", p.master, addrs)
	default:
		return "in Redis at " + addrs
	}
}

// check asks the first of the addresses that answers whether it is what the
// flags say. If it is not, what follows would fail later and less clearly: a
// node of a Cluster, for one, serves its own share of the keys alone.
func (p place) check(ctx context.Context) error {
	var silent []error
	for _, addr := range p.addrs {
		mode, err := modeOf(ctx, addr)
		if err != nil {
			silent = append(silent, err)
			continue
		}
		if err := p.suits(addr, mode); err != nil {
			return err
		}
		if p.kind == sentinel {
			return p.watched(ctx, addr)
		}
		return nil
	}
	return errors.Join(silent...)
}

// modeOf returns how the server at addr says it runs: "standalone", "cluster"
// or "sentinel"; "" if it answers, but not to this question.
func modeOf(ctx context.Context, addr string) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		return "", err
	}
	for line := range strings.Lines(info) {
		if mode, ok := strings.CutPrefix(line, "redis_mode:"); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", nil
}

func (p place) suits(addr, mode string) error {
	switch {
	case p.kind == single && mode == "cluster":
		return fmt.Errorf("it is a node of a Cluster; say so with a comma: -redis %s,", addr)
	case p.kind == cluster && mode == "standalone":
		return fmt.Errorf("%s is not in a Cluster; name one server, without a comma: -redis %[1]s", addr)
	case p.kind != sentinel && mode == "sentinel":
		return fmt.Errorf("%s is a Sentinel; name the master that it watches: -redis %s -sentinel NAME", addr, p.list)
	case p.kind == sentinel && (mode == "standalone" || mode == "cluster"):
		return fmt.Errorf("%s is no Sentinel; give the Sentinels' addresses, or leave -sentinel out", addr)
	}
	return nil
}

// watched reports whether the Sentinel at addr knows the master.
func (p place) watched(ctx context.Context, addr string) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	if err := client.GetMasterAddrByName(ctx, p.master).Err(); errors.Is(err, redis.Nil) {
		return fmt.Errorf("the Sentinel at %s watches no master %q; SENTINEL MASTERS lists those that it does", addr, p.master)
	}
	return nil
}
