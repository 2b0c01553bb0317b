package zkqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

const (
	// mostLost is how often a step whose reply was lost is repeated before that is an error.
	mostLost = 2
	// mostOdd is how often ZooKeeper may refuse a step of a record that has not changed, before that is
	// taken for damage: parts of it may have been read before a change.
	mostOdd = 5
	// mostPause bounds the pause of a step that others are in the way of.
	mostPause = 20 * time.Millisecond
)

// once says that a step is not to be repeated after a lost reply.
const once = true

// turns keeps the steps of this process on one key from being in each other's way. Those of other processes
// the versions keep apart.
type turns [256]chan struct{}

func newTurns() *turns {
	t := new(turns)
	for i := range t {
		t[i] = make(chan struct{}, 1)
	}
	return t
}

func (t *turns) take(ctx context.Context, path string) (leave func(), err error) {
	turn := t[hash(path)%uint32(len(t))]
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// on runs one step of a key: f says what is to be written, and is called again when somebody else was
// faster, or a reply was lost. An error of package queue that f returns is an answer, which stands
// if the record is still what f has seen, and errNothing without that. The change is as it was written.
func (q *zkQueue) on(ctx context.Context, doing, digest string, notTwice bool, f func(c *change) error) (*change, error) {
	leave, err := q.turns.take(ctx, q.key(digest))
	if err != nil {
		return nil, failure(doing, err)
	}
	defer leave()
	var before *change // was read before, or written by this call
	var lost, odd int
	pause := time.Millisecond
	for {
		c, answer, err := q.try(ctx, digest, before, f)
		before = nil
		switch {
		case err == nil && answer == nil && c.again:
			before = c
		case err == nil:
			return c, answer
		case c != nil && conflict(err):
			if before, err = q.retry(ctx, c, err); err != nil {
				return nil, q.failed(doing, err)
			}
			if before.exists == c.exists && before.version == c.version {
				if odd++; odd == mostOdd {
					return nil, fmt.Errorf("%w: a node of the key is missing, or is there and must not be", queue.ErrDamaged)
				}
			}
			if err := sleep(ctx, rand.N(pause)); err != nil {
				return nil, failure(doing, err)
			}
			pause = min(2*pause, mostPause)
		case lostReply(err) && lost < mostLost && (c == nil || !notTwice) && ctx.Err() == nil:
			lost++
		default:
			return nil, q.failed(doing, err)
		}
	}
}

// try reads the record, unless it was read before, and does the step once. The change is nil if nothing
// was sent to be written.
func (q *zkQueue) try(ctx context.Context, digest string, before *change, f func(c *change) error) (c *change, answer, err error) {
	if c, err = q.load(ctx, digest, before); err != nil {
		return nil, nil, err
	}
	switch answer = f(c); {
	case answer == nil:
	case errors.Is(answer, errNothing):
		return c, answer, nil
	case !isAnswer(answer), errors.Is(answer, queue.ErrDamaged):
		return nil, nil, answer
	}
	return c, answer, c.commit(answer != nil)
}

// retry reads the record again after somebody else was faster, or makes nodes of the queue that were missing.
func (q *zkQueue) retry(ctx context.Context, c *change, why error) (*change, error) {
	if errors.Is(why, zk.ErrNoNode) && !c.exists {
		if err := q.create(ctx); err != nil {
			return nil, err
		}
	}
	q.sync(ctx, q.key(c.digest)) // the server may be behind the one that has refused
	return q.load(ctx, c.digest, nil)
}

// errNothing is what a step returns that has nothing to do, whatever the record is by now.
var errNothing = errors.New("there is nothing to do")

// failed is failure, but for an answer.
func (q *zkQueue) failed(doing string, err error) error {
	if isAnswer(err) {
		return err
	}
	return failure(doing, err)
}

// isAnswer reports whether an error is what an operation is to return, as package queue says.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{queue.ErrFull, queue.ErrSuperseded, queue.ErrUnknown, queue.ErrNotParked, queue.ErrDamaged},
		func(answer error) bool { return errors.Is(err, answer) })
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// load reads the record of a key, unless it was read already. After a write of this very call it is
// what was written.
func (q *zkQueue) load(ctx context.Context, digest string, before *change) (*change, error) {
	switch {
	case before != nil && !before.again:
		return before, nil
	case before != nil:
		return &change{
			line: before.line, q: q, ctx: ctx, digest: digest, exists: true, version: before.version,
			exact: true, entry: before.entry, died: before.died,
		}, nil
	}
	c := &change{q: q, ctx: ctx, digest: digest}
	n, err := q.get(ctx, q.key(digest))
	if err != nil || n == nil {
		return c, err
	}
	if c.line, err = parseLine(n.data, n.stat.Mtime); err != nil {
		return nil, err
	}
	c.exists, c.version = true, n.stat.Version
	c.entry, _ = parseEntry(c.Entry)
	return c, nil
}

// commit writes the change, or with check alone verifies that the record is as it was read. A
// read may be of a server that is behind; what comes of commit is true.
func (c *change) commit(check bool) error {
	path := c.q.key(c.digest)
	if check || !c.writes {
		version := c.version
		if !c.exists {
			version = -1
		}
		_, _, err := c.q.multi(c.ctx, []any{&zk.CheckVersionRequest{Path: path, Version: version}})
		if !c.exists && (err == nil || errors.Is(err, zk.ErrNoNode)) {
			if err == nil {
				return zk.ErrNodeExists
			}
			return nil
		}
		return err
	}
	before := c.Entry
	c.Entry = c.entry.String()
	data := c.bytes()
	ops := slices.Clone(c.guard)
	if c.exists {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: data, Version: c.version})
	} else {
		ops = append(ops, &zk.CreateRequest{Path: path, Data: data, Acl: c.q.acl})
	}
	ops = append(ops, c.ops...)
	if c.Entry != before {
		if old, ok := parseEntry(before); ok {
			ops = append(ops, &zk.DeleteRequest{Path: c.q.paths.entry(old), Version: -1})
		}
		ops = append(ops, &zk.CreateRequest{Path: c.q.paths.entry(c.entry), Acl: c.q.acl})
	}
	if c.tells && (c.entry.kind == since || c.entry.kind == due) {
		at := int64(0)
		if c.entry.kind == due {
			at = c.entry.at
		}
		ops = append(ops, &zk.SetDataRequest{Path: c.q.wakeup(c.q.shardOf(c.digest)), Data: strconv.AppendInt(nil, at, 10), Version: -1})
	}
	_, written, err := c.q.multi(c.ctx, ops)
	if err != nil {
		return err
	}
	if c.exists {
		c.version++
	}
	c.exists = true
	c.resolve(written)
	return nil
}

// create makes the nodes of the queue that are missing.
func (q *zkQueue) create(ctx context.Context) error {
	var all []string
	for i := 1; i < len(q.base); i++ {
		if q.base[i] == '/' {
			all = append(all, q.base[:i])
		}
	}
	all = append(all, q.base, q.keys(), q.tick())
	for shard := range q.shards {
		all = append(all, q.due(shard), q.wakeup(shard))
	}
	for part := range idleParts {
		all = append(all, q.idle(part))
	}
	for _, path := range all {
		_, err := call(ctx, func() (string, error) { return q.conn.Create(path, []byte("0"), 0, q.acl) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// time sees to it that the clock is known.
func (q *zkQueue) time(ctx context.Context) error {
	if q.clock.isFresh() {
		return nil
	}
	for range 2 {
		_, _, err := q.multi(ctx, []any{&zk.SetDataRequest{Path: q.tick(), Version: -1}})
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := q.create(ctx); err != nil {
			return err
		}
	}
	return zk.ErrNoNode
}

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

// clock estimates the leader's clock. Each write says what it was, between when the write
// was sent and when its answer came: so there is a least and a largest difference from this
// process's clock. If the two cross, the leader's clock was set, or another server leads, and
// the last write alone counts.
//
// What a run waits for is not decided by it: see [change.begin].
type clock struct {
	epoch time.Time

	mu    sync.Mutex
	known bool
	asked time.Duration // when the last write was answered, after epoch
	least time.Duration // leader's clock less this one's, at least
	most  time.Duration
}

// fresh is for how long an estimate is good enough.
const fresh = time.Minute

func newClock() *clock { return &clock{epoch: time.Now()} }

// learn notes that a write that was sent then, and answered just now, has that time.
func (c *clock) learn(sent time.Time, written int64) {
	at := time.Duration(written) * time.Millisecond
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = time.Since(c.epoch)
	least, most := at-c.asked, at+time.Millisecond-sent.Sub(c.epoch)
	if c.known && least <= c.most && most >= c.least {
		least, most = max(least, c.least), min(most, c.most)
	}
	c.known, c.least, c.most = true, least, most
}

// isFresh reports whether a write was answered not long ago.
func (c *clock) isFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known && time.Since(c.epoch)-c.asked < fresh
}

// between returns the least and the largest time that it may be, in milliseconds.
func (c *clock) between() (least, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := time.Since(c.epoch)
	return (here + c.least).Milliseconds(), millis(here + c.most)
}

// millis rounds up.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func duration(ms int64) time.Duration { return time.Duration(max(ms, 0)) * time.Millisecond }
