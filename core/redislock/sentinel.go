package redislock

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// NewFailoverClient is [redis.NewFailoverClient] for several sentinels of which one may be
// behind. The client of go-redis follows the one sentinel that it is connected to. If that one
// was cut off together with an old master, it names that master for some seconds after the
// network has healed, while other clients use the new one: a lock may have two holders.
//
// This client asks all sentinels in SentinelAddrs before it connects to a master, when one of
// them tells of a failover, and every 0.5 s besides. If two masters are named, the one with the
// higher configuration epoch is right: connections to the other one are closed, and new ones go
// to the right one instead. A master that none of them names is refused while one of them is
// silent. A client that reaches only sentinels that are behind still uses the old master: set
// min-replicas-to-write there.
//
// List all sentinels, and leave ReplicaOnly false. A sentinel that does not answer within 0.25 s
// counts with what it said last, and each new connection takes that long then. The client asks for
// as long as it has connections; close it to end that. go-redis 9.19 to 9.22 may leave connections
// open then; 9.23 and 9.18 do not. Start clients anew if the master is monitored anew, with epochs
// from 0, while a sentinel is gone for good.
func NewFailoverClient(o *redis.FailoverOptions) *redis.Client {
	own := *o
	f := &follower{
		options: own,
		dialer:  o.Dialer,
		named:   make(map[string]mastership),
		epochs:  make(map[string]uint64),
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

const (
	// sentinelRound is how often a failover client asks each of its sentinels who is
	// the master if none publishes an event, and twice the time that an answer may take.
	sentinelRound = 500 * time.Millisecond

	// dialTimeout is go-redis's default.
	dialTimeout = 5 * time.Second
)

var (
	errSuperseded  = errors.New("redis: the master was superseded while it was connected to")
	errUnconfirmed = errors.New("redis: no sentinel of SentinelAddrs confirms the master that one has named; the next attempt asks again")
)

// mastership is the master that a sentinel names, with its configuration epoch.
type mastership struct {
	addr  string
	epoch uint64
}

// follower knows which master is the right one.
type follower struct {
	options redis.FailoverOptions
	dialer  func(ctx context.Context, network, addr string) (net.Conn, error)

	askMutex    sync.Mutex // held during a round; guards what follows
	askedAt     time.Time  // when the latest round began
	allAnswered bool       // whether all sentinels answered in it
	sentinels   map[string]*redis.SentinelClient

	mu        sync.Mutex
	named     map[string]mastership // the latest answer of each sentinel
	epochs    map[string]uint64     // the highest epoch of each master that was ever named
	conns     map[*followedConn]bool
	stopWatch context.CancelFunc // ends the watch; nil if there is none
}

// dial connects to a sentinel, or to the right master.
func (f *follower) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := f.connect(ctx, network, addr)
	if err != nil {
		f.closeSentinels()
	}
	return conn, err
}

func (f *follower) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	if slices.Contains(f.options.SentinelAddrs, addr) {
		return f.dialer(ctx, network, addr)
	}
	all := f.ask(ctx, time.Now()) // what the client has just heard may be newer than the latest round
	f.mu.Lock()
	right, known := f.right(addr)
	f.mu.Unlock()
	switch {
	case known:
	case f.isSentinel(ctx, addr): // one that go-redis has found by itself
		return f.dialer(ctx, network, addr)
	case !all: // the silent one may name it
		return nil, errUnconfirmed
	}
	conn, err := f.dialer(ctx, network, right)
	if err != nil {
		return nil, err
	}
	return f.follow(right, conn)
}

// right returns the master that has superseded the one at addr, or addr. known is false if
// none of the sentinels has ever named addr, and some have named others. f.mu is locked.
func (f *follower) right(addr string) (right string, known bool) {
	var latest mastership
	for _, m := range f.named {
		if m.epoch >= latest.epoch {
			latest = m
		}
	}
	epoch, known := f.epochs[addr] // of an earlier answer, too
	if latest.addr == "" || known && epoch >= latest.epoch {
		return addr, true
	}
	return latest.addr, known
}

// isRight reports whether no master has superseded the one at addr. f.mu is locked.
func (f *follower) isRight(addr string) bool {
	right, _ := f.right(addr)
	return right == addr
}

// follow registers the connection until it is closed, and starts the watch.
func (f *follower) follow(addr string, conn net.Conn) (net.Conn, error) {
	c := &followedConn{Conn: conn, f: f, addr: addr}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.isRight(addr) {
		_ = conn.Close()
		return nil, errSuperseded
	}
	f.conns[c] = true
	if f.stopWatch == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f.stopWatch = cancel
		go f.watch(ctx)
	}
	if raw, ok := conn.(syscall.Conn); ok {
		return rawConn{c, raw}, nil
	}
	return c, nil
}

// watch asks the sentinels when one of them publishes an event, and every sentinelRound.
func (f *follower) watch(ctx context.Context) {
	defer f.closeSentinels()
	f.askMutex.Lock()
	sentinels := f.sentinelClients()
	f.askMutex.Unlock()
	events := kit.NewSignal()
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range sentinels {
		all.Go(func() { listen(ctx, s, events) })
	}
	tick := time.NewTicker(sentinelRound)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-tick.C:
		}
		f.ask(ctx, time.Now())
	}
}

// failoverEvents are the channels on which a sentinel names another master.
var failoverEvents = []string{"+switch-master", "+promoted-slave", "+config-update-from"}

// listen sets the signal when a sentinel publishes an event.
func listen(ctx context.Context, s *redis.SentinelClient, events kit.Signal) {
	sub := s.Subscribe(ctx, failoverEvents...)
	defer func() { _ = sub.Close() }()
	heard := sub.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-heard:
			if !open {
				return
			}
		}
		events.Set()
	}
}

// ask asks all sentinels at once, unless a round began after since. It reports whether all
// have answered.
func (f *follower) ask(ctx context.Context, since time.Time) bool {
	f.askMutex.Lock()
	defer f.askMutex.Unlock()
	if f.askedAt.After(since) {
		return f.allAnswered
	}
	f.askedAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, sentinelRound/2)
	defer cancel()
	var silent atomic.Bool
	var all sync.WaitGroup
	for addr, s := range f.sentinelClients() {
		all.Go(func() {
			m, ok := masterOf(ctx, s, f.options.MasterName)
			if !ok {
				silent.Store(true)
				return
			}
			f.learn(addr, m)
		})
	}
	all.Wait()
	f.allAnswered = !silent.Load()
	return f.allAnswered
}

// learn keeps the answer of a sentinel, and closes the connections to superseded masters.
func (f *follower) learn(sentinel string, m mastership) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named[sentinel] = m
	f.epochs[m.addr] = max(f.epochs[m.addr], m.epoch)
	for c := range f.conns {
		if !f.isRight(c.addr) {
			_ = c.Conn.Close() // go-redis notices, and closes c
		}
	}
}

// isSentinel reports whether a sentinel knows another sentinel at addr.
func (f *follower) isSentinel(ctx context.Context, addr string) bool {
	f.askMutex.Lock()
	defer f.askMutex.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sentinelRound/2)
	defer cancel()
	for _, s := range f.sentinelClients() {
		others, _ := s.Sentinels(ctx, f.options.MasterName).Result()
		for _, o := range others {
			if net.JoinHostPort(o["ip"], o["port"]) == addr {
				return true
			}
		}
	}
	return false
}

// sentinelClients returns a client of each sentinel. f.askMutex is locked.
func (f *follower) sentinelClients() map[string]*redis.SentinelClient {
	if f.sentinels == nil {
		f.sentinels = make(map[string]*redis.SentinelClient)
		for _, addr := range f.options.SentinelAddrs {
			f.sentinels[addr] = redis.NewSentinelClient(&redis.Options{
				Addr: addr, Dialer: f.dialer, PoolSize: 1, MaxRetries: -1, ContextTimeoutEnabled: true,
				Username: f.options.SentinelUsername, Password: f.options.SentinelPassword,
				Protocol: f.options.Protocol, DisableIdentity: true,
			})
		}
	}
	return f.sentinels
}

// closeSentinels closes the connections to the sentinels unless the watch needs them.
func (f *follower) closeSentinels() {
	f.askMutex.Lock()
	defer f.askMutex.Unlock()
	f.mu.Lock()
	watched := f.stopWatch != nil
	f.mu.Unlock()
	if watched {
		return
	}
	for _, s := range f.sentinels {
		_ = s.Close()
	}
	f.sentinels = nil
}

// masterOf asks for the epoch first: then the address is at least as new as the epoch.
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
	if len(c.f.conns) == 0 && c.f.stopWatch != nil {
		c.f.stopWatch()
		c.f.stopWatch = nil
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
