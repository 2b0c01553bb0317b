package zkqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// call runs f, a call of the client library, on a goroutine of its own, since the library knows no
// context. If ctx ends before, the call is left behind: it ends with the connection.
func call[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// node is a node that was read.
type node struct {
	data []byte
	stat *zk.Stat
}

// get reads a node; nil if there is none.
func (s *Store) get(ctx context.Context, path string) (*node, error) {
	n, err := call(ctx, func() (*node, error) {
		data, stat, err := s.conn.Get(path)
		return &node{data, stat}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return n, err
}

// stat reads what a node is; nil if there is none.
func (s *Store) stat(ctx context.Context, path string) (*zk.Stat, error) {
	return call(ctx, func() (*zk.Stat, error) {
		found, stat, err := s.conn.Exists(path)
		if !found {
			stat = nil
		}
		return stat, err
	})
}

// children reads the names of a node's children. There are none if there is no node.
func (s *Store) children(ctx context.Context, path string) ([]string, error) {
	names, err := call(ctx, func() ([]string, error) {
		names, _, err := s.conn.Children(path)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// sync brings the server that is connected up to the latest writes. An error shows in what
// comes next.
func (s *Store) sync(ctx context.Context, path string) {
	_, _ = call(ctx, func() (string, error) { return s.conn.Sync(path) })
}

// multi runs all ops or none. It returns their results also if they fail, and when they were written,
// if one of them tells.
func (s *Store) multi(ctx context.Context, ops []any) (results []zk.MultiResponse, written int64, err error) {
	sent := time.Now()
	results, err = call(ctx, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
	if err != nil {
		return results, 0, err
	}
	for _, r := range results {
		if r.Stat != nil && r.Stat.Mtime > written {
			written = r.Stat.Mtime
		}
	}
	if written > 0 {
		s.clock.learn(sent, written)
	}
	return results, written, nil
}

// lostReply reports whether a request with this error may have been carried out, and is worth
// repeating.
func lostReply(err error) bool {
	for _, e := range []error{zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, new(net.Error)) && !errors.Is(err, context.DeadlineExceeded)
}

// conflict reports whether a Multi has found other nodes than were read before.
func conflict(err error) bool {
	for _, e := range []error{zk.ErrBadVersion, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failure wraps what the client or the servers say.
func failure(doing string, err error) error { return fmt.Errorf("zkqueue: %s: %w", doing, err) }
