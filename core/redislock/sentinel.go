package redislock

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sentinelRound is how often a failover client asks each of its sentinels who is
	// the master, and twice how long an answer may take.
	sentinelRound = 500 * time.Millisecond

	// dialTimeout is go-redis's default.
	dialTimeout = 5 * time.Second
)

var errSuperseded = errors.New("redis: the master was superseded while it was connected to")

// NewFailoverClient is [redis.NewFailoverClient] for several sentinels of which one may be
// behind. The client of go-redis follows the one sentinel that it is connected to. If that one
// was cut off together with an old master, it names that master for some seconds after the
// network has healed, while other clients use the new one: a lock may have two holders.
//
// This client asks all sentinels in SentinelAddrs before it connects to a master, and every
// 0.5 s besides. If two masters are named, the one with the higher configuration epoch is right:
// connections to the other one are closed, and new ones go to the right one instead. A
// client that reaches only sentinels that are behind still uses the old master: set
// min-replicas-to-write there.
//
// List all sentinels, and leave ReplicaOnly false. A sentinel that does not answer within 0.25 s
// counts with what it said last, and each new connection takes that long then. The client asks for
// as long as it has connections; close it to end that. Start clients anew if the master is
// monitored anew, with epochs from 0, while a sentinel is gone for good.
func NewFailoverClient(o *redis.FailoverOptions) *redis.Client {
	own := *o
	f := &follower{
		options: own,
		dialer:  o.Dialer,
		named:   make(map[string]mastership),
		conns:   make(map[*followedConn]bool),
	}
	if f.dialer == nil {
		f.dialer = redis.NewDialer(&redis.Options{
			DialTimeout: cmp.Or(o.DialTimeout, dialTimeout), TLSConfig: o.TLSConfig,
		})
	}
	own.Dialer = f.dial
	return redis.NewFailoverClient(&own)
}

// mastership is what a sentinel says.
type mastership struct {
	addr  string
	epoch uint64
}

// follower knows which master is the right one.
type follower struct {
	options redis.FailoverOptions
	dialer  func(ctx context.Context, network, addr string) (net.Conn, error)

	asking    sync.Mutex // by one at a time; guards what follows
	asked     time.Time  // when the latest round began
	sentinels map[string]*redis.SentinelClient

	mu      sync.Mutex
	named   map[string]mastership // by sentinel, the latest answer of each
	conns   map[*followedConn]bool
	watched context.CancelFunc // ends the watch; nil if there is none
}

// dial connects to a sentinel, or to the right master.
func (f *follower) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if !slices.Contains(f.options.SentinelAddrs, addr) {
		f.ask(ctx, time.Now()) // what the client has just heard may be newer than the latest round
		f.mu.Lock()
		addr = f.right(addr)
		f.mu.Unlock()
	}
	conn, err := f.dialer(ctx, network, addr)
	if err == nil {
		conn, err = f.follow(addr, conn)
	}
	if err != nil {
		f.hangUp()
	}
	return conn, err
}

// right returns the master that has superseded the one at addr, which some sentinel still names,
// or addr.
func (f *follower) right(addr string) string {
	var old, latest mastership
	for _, m := range f.named {
		if m.addr == addr && m.epoch >= old.epoch {
			old = m
		}
		if m.epoch >= latest.epoch {
			latest = m
		}
	}
	if old.addr == "" || latest.epoch == old.epoch {
		return addr
	}
	return latest.addr
}

// follow keeps the connection under watch until it is closed.
func (f *follower) follow(addr string, conn net.Conn) (net.Conn, error) {
	c := &followedConn{Conn: conn, f: f, addr: addr}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.right(addr) != addr {
		_ = conn.Close()
		return nil, errSuperseded
	}
	f.conns[c] = true
	if f.watched == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f.watched = cancel
		go f.watch(ctx)
	}
	if raw, ok := conn.(syscall.Conn); ok {
		return rawConn{c, raw}, nil
	}
	return c, nil
}

// watch asks the sentinels again and again.
func (f *follower) watch(ctx context.Context) {
	defer f.hangUp()
	tick := time.NewTicker(sentinelRound)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			f.ask(ctx, now)
		}
	}
}

// ask asks all sentinels at once unless they were asked since, and closes the connections to
// masters that were superseded.
func (f *follower) ask(ctx context.Context, since time.Time) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if f.asked.After(since) {
		return
	}
	f.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, sentinelRound/2)
	defer cancel()
	if f.sentinels == nil {
		f.sentinels = f.newSentinels()
	}
	var all sync.WaitGroup
	for addr := range f.sentinels {
		all.Go(func() {
			if m, ok := masterOf(ctx, f.sentinels[addr], f.options.MasterName); ok {
				f.mu.Lock()
				f.named[addr] = m
				f.mu.Unlock()
			}
		})
	}
	all.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if f.right(c.addr) != c.addr {
			_ = c.Conn.Close() // go-redis notices, and closes c
		}
	}
}

func (f *follower) newSentinels() map[string]*redis.SentinelClient {
	all := make(map[string]*redis.SentinelClient)
	for _, addr := range f.options.SentinelAddrs {
		all[addr] = redis.NewSentinelClient(&redis.Options{
			Addr: addr, Dialer: f.dialer, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
			Username: f.options.SentinelUsername, Password: f.options.SentinelPassword,
			Protocol: f.options.Protocol, DisableIdentity: true,
		})
	}
	return all
}

// hangUp ends the connections to the sentinels unless the watch needs them.
func (f *follower) hangUp() {
	f.asking.Lock()
	defer f.asking.Unlock()
	f.mu.Lock()
	watched := f.watched != nil
	f.mu.Unlock()
	if watched {
		return
	}
	for _, s := range f.sentinels {
		_ = s.Close()
	}
	f.sentinels = nil
}

// masterOf asks for the epoch first: that of an address that is asked for later is not older.
func masterOf(ctx context.Context, s *redis.SentinelClient, name string) (m mastership, ok bool) {
	fields, err := s.Master(ctx, name).Result()
	if err != nil {
		return m, false
	}
	epoch, err := strconv.ParseUint(fields["config-epoch"], 10, 64)
	if err != nil {
		return m, false
	}
	addr, err := s.GetMasterAddrByName(ctx, name).Result()
	if err != nil || len(addr) != 2 {
		return m, false
	}
	return mastership{net.JoinHostPort(addr[0], addr[1]), epoch}, true
}

// followedConn is a connection that the follower closes if its master is superseded.
type followedConn struct {
	net.Conn
	f    *follower
	addr string
}

// Close also ends the watch if no connection is left.
func (c *followedConn) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c)
	if len(c.f.conns) == 0 && c.f.watched != nil {
		c.f.watched()
		c.f.watched = nil
	}
	c.f.mu.Unlock()
	return c.Conn.Close()
}

// rawConn lets go-redis see whether an idle connection has ended.
type rawConn struct {
	*followedConn
	raw syscall.Conn
}

func (c rawConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }
