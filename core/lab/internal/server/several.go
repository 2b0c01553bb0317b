package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is a redis-server that belongs to others, and a client of it alone.
type node struct {
	*Server
	client *redis.Client
	dead   bool
}

// startNode starts one with those arguments.
func startNode(ctx context.Context, args ...string) (*node, error) {
	return nodeIn(func(folder string) (*Server, error) { return launchRedis(ctx, folder, args...) })
}

func nodeIn(start func(folder string) (*Server, error)) (*node, error) {
	s, err := inFolder(start)
	if err != nil {
		return nil, err
	}
	return &node{Server: s, client: redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1})}, nil
}

// die ends the node as kill -9 does.
func (n *node) die() {
	n.Kill()
	n.dead = true
}

// revive starts the node again, if it is dead: with nothing but its arguments.
func (n *node) revive(ctx context.Context) error {
	if !n.dead {
		return nil
	}
	if err := n.Restart(ctx); err != nil {
		return err
	}
	n.dead = false
	return nil
}

// do sends a command.
func (n *node) do(ctx context.Context, words ...any) error {
	if err := n.client.Do(ctx, words...).Err(); err != nil {
		return fmt.Errorf("%v at %s: %w", words, n.Addr, err)
	}
	return nil
}

// info returns a number of INFO replication, -1 if there is none.
func (n *node) info(ctx context.Context, name string) int64 {
	number, err := strconv.ParseInt(n.told(ctx, name), 10, 64)
	if err != nil {
		return -1
	}
	return number
}

// told returns a line of INFO replication.
func (n *node) told(ctx context.Context, name string) string {
	for line := range strings.Lines(n.client.Info(ctx, "replication").Val()) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (n *node) close() error { return errors.Join(n.client.Close(), n.Close()) }

// several are the servers of a store that have data.
type several []*node

// Addrs returns the addresses of all.
func (s several) Addrs() []string {
	var out []string
	for _, n := range s {
		out = append(out, n.Addr)
	}
	return out
}

// Stop stops all that are not dead.
func (s several) Stop() error { return s.alive((*Server).Stop) }

// Cont lets all that are not dead go on.
func (s several) Cont() error { return s.alive((*Server).Cont) }

func (s several) alive(do func(*Server) error) error {
	var errs []error
	for _, n := range s {
		if !n.dead {
			errs = append(errs, do(n.Server))
		}
	}
	return errors.Join(errs...)
}

// Close ends all.
func (s several) Close() error {
	var errs []error
	for _, n := range s {
		errs = append(errs, n.close())
	}
	return errors.Join(errs...)
}

// die kills all of them.
func (s several) die() {
	for _, n := range s {
		n.die()
	}
}

// revive starts those that are dead.
func (s several) revive(ctx context.Context) error {
	for _, n := range s {
		if err := n.revive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// without returns all but one.
func (s several) without(n *node) several {
	return slices.DeleteFunc(slices.Clone(s), func(o *node) bool { return o == n })
}

// at returns the node with an address, nil if there is none.
func (s several) at(addr string) *node {
	if i := slices.IndexFunc(s, func(n *node) bool { return n.Addr == addr }); i >= 0 {
		return s[i]
	}
	return nil
}

// until asks every 10 ms whether something holds, for two minutes.
func until(ctx context.Context, what string, holds func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("waited in vain for %s", what))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
