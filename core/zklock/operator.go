package zklock

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	holders, waiting, err := s.readHolders(s.callerOf(ctx), s.keyPath(key))
	if c := s.callerOf(ctx); retryAtOnce(c, err) {
		holders, waiting, err = s.readHolders(c, s.keyPath(key))
	}
	if err != nil {
		return driver.State{}, callerError(err)
	}
	now := time.Now()
	st := driver.State{Held: len(holders) > 0, Waiting: waiting}
	for i, h := range holders {
		left := remaining(h.rec, h.stat, now)
		if i == 0 || left < st.Remaining {
			st.Remaining = left
		}
		st.Token = max(st.Token, h.stat.Czxid)
		mode, limit := h.mode()
		if h.rec.state == lowered {
			mode = driver.Shared
		}
		st.Holders = append(st.Holders, driver.Holder{
			Mode: mode, Limit: limit, Token: h.stat.Czxid, Since: time.UnixMilli(sinceOf(h.rec, h.stat)), Remaining: left,
		})
	}
	return st, nil
}

// Oust ends leases, whoever has them.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	c, parent := s.callerOf(ctx), s.keyPath(key)
	for {
		holders, _, err := s.readHolders(c, parent)
		if err != nil {
			return callerError(err)
		}
		var over []deletion
		for _, h := range holders {
			if h.stat.Czxid <= upTo {
				over = append(over, deletion{h.name, -1})
			}
		}
		if len(over) == 0 {
			return nil
		}
		if err := s.deleteAndTell(c, parent, over...); err != zk.ErrNoNode {
			return callerError(err)
		}
	}
}

// atOnce bounds how many nodes are read at the same time.
const atOnce = 64

// holder is a member that holds the key, and its node.
type holder struct {
	member
	node
	rec record
}

// readHolders reads the line of a key, up to date with the leader, and the nodes of its holders.
// waiting is how many wait.
func (s *session) readHolders(c caller, parent string) (holders []holder, waiting int, err error) {
	if err := s.catchUp(c, parent); err != nil {
		return nil, 0, err
	}
	all, err := s.list(c, parent)
	if err != nil {
		return nil, 0, ignore(err, zk.ErrNoNode)
	}
	n := all.holders(false)
	if n == 1 && all.line[0].capacity == 1 {
		head, err := s.readNodes(c, parent, all.line[:1])
		if err != nil {
			return nil, 0, err
		}
		if len(head) == 0 {
			return s.readHolders(c, parent)
		}
		if head[0].rec.state != lowered {
			return head, len(all.line) - 1, nil
		}
		n = all.holders(true)
	}
	for len(holders) < n {
		part := all.line[len(holders):min(n, len(holders)+atOnce)]
		got, err := s.readNodes(c, parent, part)
		if err != nil {
			return nil, 0, err
		}
		if len(got) < len(part) {
			return s.readHolders(c, parent)
		}
		holders = append(holders, got...)
	}
	return holders, len(all.line) - n, nil
}

// readNodes reads the nodes of members. It leaves out those that are gone.
func (s *session) readNodes(c caller, parent string, ms []member) ([]holder, error) {
	all := make([]holder, len(ms))
	errs := make([]error, len(ms))
	each(len(ms), func(i int) {
		all[i].member = ms[i]
		if all[i].node, errs[i] = s.get(c, parent+"/"+ms[i].name); errs[i] != nil {
			return
		}
		var err error
		if all[i].rec, err = parseRecord(all[i].data); err != nil {
			errs[i] = &driver.PermanentError{Err: err}
		}
	})
	var there []holder
	for i, err := range errs {
		switch {
		case err == nil:
			there = append(there, all[i])
		case err != zk.ErrNoNode:
			return nil, err
		}
	}
	return there, nil
}

var _ driver.Lister = (*session)(nil)

// List names the keys that have nodes. ZooKeeper names the children of a node all at once, so
// there is one page, whatever the limit. Keys that were used within the last minute or two are
// there too.
func (s *session) List(ctx context.Context, prefix, _ string, _ int) (page driver.Page, err error) {
	if err := s.Enter(); err != nil {
		return page, err
	}
	defer s.Leave()
	c := s.callerOf(ctx)
	names, err := s.readKeys(c)
	if retryAtOnce(c, err) {
		names, err = s.readKeys(c)
	}
	for _, name := range names {
		if key, ok := parseKeyName(name); ok && strings.HasPrefix(key, prefix) {
			page.Keys = append(page.Keys, key)
		}
	}
	return page, callerError(err)
}

// readKeys reads the names of the keys' nodes, up to date with the leader.
func (s *session) readKeys(c caller) ([]string, error) {
	if err := s.catchUp(c, s.root); err != nil {
		return nil, err
	}
	names, err := call(s, c, nil, func(conn *zk.Conn) ([]string, error) {
		names, _, err := conn.Children(s.root)
		return names, err
	})
	return names, ignore(err, zk.ErrNoNode)
}

// parseKeyName is the inverse of keyName. ok is false if that returns no such name.
func parseKeyName(name string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(name, "=")
	if !ok {
		return "", false
	}
	b := make([]byte, 0, len(rest))
	for i := 0; i < len(rest); i++ {
		if rest[i] != '%' {
			b = append(b, rest[i])
			continue
		}
		if i+2 >= len(rest) {
			return "", false
		}
		one, err := hex.DecodeString(rest[i+1 : i+3])
		if err != nil {
			return "", false
		}
		b = append(b, one[0])
		i += 2
	}
	key = string(b)
	return key, key != "" && keyName(key) == name
}
