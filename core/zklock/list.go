package zklock

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

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
