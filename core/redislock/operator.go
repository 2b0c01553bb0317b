package redislock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	c := s.askTwice(ctx, s.calls, []command{{script: &protocol.Inspect, key: s.name(key)}}, func(value any) bool {
		r, err := protocol.ParseInspect(value)
		return err == nil && !r.Held
	})[0]
	if s.sharesKeys() && isOverwritten(c.reply.err) {
		return driver.State{Held: true}, nil // by somebody else's library
	}
	if c.reply.err != nil {
		return driver.State{}, c.reply.err
	}
	r, err := protocol.ParseInspect(c.reply.value)
	if err != nil {
		return driver.State{}, classify(err)
	}
	st := driver.State{Held: r.Held, Token: r.Token, Remaining: r.Left, Waiting: int(r.Waiting)}
	for _, h := range r.Holders {
		mode, limit := h.Mode()
		st.Holders = append(st.Holders, driver.Holder{
			Mode: mode, Limit: limit, Token: h.Token, Since: time.UnixMicro(h.Token), Remaining: h.Left, Kept: h.Kept,
			Origin: originOf(h.Taker),
		})
	}
	return st, nil
}

// Oust ends the leases of all owners with tokens up to upTo.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	more := true
	for more { // a long queue may take several runs
		oust := command{script: &protocol.Oust, key: s.name(key), args: protocol.OustArgs{UpTo: upTo}.Args()}
		c := s.askTwice(ctx, s.calls, []command{oust}, func(value any) bool {
			r, err := protocol.ParseOust(value)
			return err == nil && r.Ended == 0
		})[0]
		if c.reply.err != nil {
			return classify(c.reply.err)
		}
		r, err := protocol.ParseOust(c.reply.value)
		if err != nil {
			return classify(err)
		}
		more = r.More
	}
	return nil
}

var _ driver.Lister = (*session)(nil)

// List names keys by SCAN: in a Cluster at one master after the other. It may miss
// a key if a slot moves, or a replica becomes the master, between two pages. Keys of which
// an owner that was given up is remembered are there too.
func (s *session) List(ctx context.Context, prefix, after string, limit int) (page driver.Page, err error) {
	if err := s.Enter(); err != nil {
		return page, err
	}
	defer s.Leave()
	page, err = kit.Run(ctx, s.Life, s.timeout, func(ctx context.Context) (page driver.Page, err error) {
		page.Keys, page.Next, err = s.calls.wire.scan(ctx, prefix, after, limit)
		return page, err
	})
	return page, missing("scan", err)
}

// scan looks at names by SCAN, which takes no longer than a few other commands. A place to go on
// from is the cursor, and in a Cluster the address of the master before it.
func (w *clientWire) scan(ctx context.Context, prefix, after string, limit int) (keys []string, next string, err error) {
	var cursor uint64
	var addr, following string
	server := redis.Cmdable(w.client)
	if w.cluster != nil {
		addr, after, _ = strings.Cut(after, " ")
		if server, addr, following, err = w.masters(ctx, addr); err != nil {
			return nil, "", classify(err)
		}
	}
	if after != "" {
		if _, err := fmt.Sscan(after, &cursor); err != nil {
			return nil, "", &driver.PermanentError{Err: fmt.Errorf("redis: list keys after %q, which no page has returned", after)}
		}
	}
	names, cursor, err := server.Scan(ctx, cursor, protocol.Pattern(prefix), int64(limit)).Result()
	if err != nil {
		return nil, "", w.classify(err)
	}
	for _, name := range names {
		if key, ok := protocol.ParseKey(name); ok && strings.HasPrefix(key, prefix) && key != "" {
			keys = append(keys, key)
		}
	}
	switch {
	case w.cluster == nil && cursor != 0:
		next = fmt.Sprint(cursor)
	case cursor != 0:
		next = fmt.Sprint(addr, " ", cursor)
	case following != "":
		next = following + " 0"
	}
	return keys, next, nil
}

// masters returns the master of that address, or the first of all if addr is empty, and the
// address of the one after it, if there is one.
func (w *clientWire) masters(ctx context.Context, addr string) (master *redis.Client, at, following string, err error) {
	var mu sync.Mutex
	all := make(map[string]*redis.Client)
	err = w.cluster.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[m.Options().Addr] = m
		return nil
	})
	if err != nil {
		return nil, "", "", err
	}
	addrs := slices.Sorted(maps.Keys(all))
	i := 0
	if addr != "" {
		i = slices.Index(addrs, addr)
	}
	if i < 0 || len(addrs) == 0 {
		return nil, "", "", fmt.Errorf("%s is no master of the Cluster any more; begin to list anew", addr)
	}
	if i+1 < len(addrs) {
		following = addrs[i+1]
	}
	return all[addrs[i]], addrs[i], following, nil
}
