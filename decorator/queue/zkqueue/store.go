package zkqueue

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Store is a [queue.Store] in ZooKeeper. It is safe for concurrent use.
type Store struct {
	conn      *zk.Conn
	root      string
	acl       []zk.ACL
	shards    int
	maxBuffer int
	clock     *clock
	turns     *turns
}

var _ queue.Store = (*Store)(nil)

// DefaultMaxBuffer is the jute.maxbuffer of servers that set none.
const DefaultMaxBuffer = 0xfffff

const (
	// reserve is what a request has beside a payload: the record of a key, paths and permissions.
	reserve = 32 << 10
	// maxRoot is how many bytes a root may have, and maxACL how many entries its permissions may
	// have, for reserve to be enough.
	maxRoot = 256
	maxACL  = 16
)

// Option configures a [Store]. A nil Option changes nothing.
type Option func(*Store)

// WithShards sets how many parts a queue has, from 1, the default, to 64. All processes that
// use a queue have the same number, for as long as it has items. The keys of a part that have
// items are read at once, and the answer has to fit in jute.maxbuffer: one part has room for
// some 26,000.
func WithShards(n int) Option { return func(s *Store) { s.shards = n } }

// WithMaxBuffer says what the servers' property jute.maxbuffer is, in bytes from 64 KiB to
// 64 MiB, if it is not [DefaultMaxBuffer]. It bounds items, and how many keys may have some. With more than
// 1.5 MiB the connection needs zk.WithMaxConnBufferSize as well.
func WithMaxBuffer(bytes int) Option { return func(s *Store) { s.maxBuffer = bytes } }

// WithACL sets the permissions of the nodes that the store creates, at most 16 entries. All
// processes that use a queue need all permissions on its nodes. The default permits
// everybody everything.
func WithACL(acl ...zk.ACL) Option { return func(s *Store) { s.acl = acl } }

// New returns a store of the queues whose nodes are below root, a path such as "/shop/queues".
// Stores with the same root share them. Nothing else may write there. New does no I/O, and conn stays
// the caller's.
func New(conn *zk.Conn, root string, opts ...Option) (*Store, error) {
	if conn == nil {
		return nil, errors.New("zkqueue: the *zk.Conn is nil; use what zk.Connect returns")
	}
	s := &Store{conn: conn, root: root, acl: zk.WorldACL(zk.PermAll), shards: 1, maxBuffer: DefaultMaxBuffer, clock: newClock(), turns: newTurns()}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	switch {
	case !validRoot(root):
		return nil, fmt.Errorf(`zkqueue: the root is %q; use a path of at most %d bytes that only these queues have, such as "/shop/queues"`, root, maxRoot)
	case s.shards < 1 || s.shards > 64:
		return nil, fmt.Errorf("zkqueue: WithShards has %d; use 1 to 64", s.shards)
	case s.maxBuffer < 64<<10 || s.maxBuffer > 64<<20:
		return nil, fmt.Errorf("zkqueue: WithMaxBuffer has %d; use the servers' jute.maxbuffer, 64 KiB to 64 MiB", s.maxBuffer)
	case len(s.acl) < 1 || len(s.acl) > maxACL:
		return nil, fmt.Errorf("zkqueue: WithACL has %d entries; use 1 to %d", len(s.acl), maxACL)
	}
	return s, nil
}

func validRoot(root string) bool {
	if len(root) > maxRoot || !strings.HasPrefix(root, "/") {
		return false
	}
	for i, part := range strings.Split(root[1:], "/") {
		if part == "" || part == "." || part == ".." || i == 0 && part == "zookeeper" {
			return false
		}
		for _, r := range part {
			if r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0 {
				return false
			}
		}
	}
	return true
}

// MaxPayload is how many bytes the payload of an item may have.
func (s *Store) MaxPayload() int { return min(s.maxBuffer-reserve, queue.MaxPayload) }

// maxKeys is how many keys of a shard may have items, so that an answer can name them all.
func (s *Store) maxKeys() int32 { return int32((s.maxBuffer - 1<<10) / (entryLength + 4)) }

// Open returns the queue of that name, of 1 to 256 bytes.
func (s *Store) Open(name string, r queue.Rules) (queue.Queue, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if name == "" || len(name) > 256 {
		return nil, fmt.Errorf("zkqueue: the queue's name has %d bytes; 1 to 256 are possible: set Policy.Name", len(name))
	}
	return &zkQueue{Store: s, rules: r, paths: pathsOf(s.root, name, s.shards)}, nil
}

// zkQueue is a queue.Queue.
type zkQueue struct {
	*Store
	rules queue.Rules
	paths
	sweepAt atomic.Int64 // when to look for keys to forget, by this process's clock in Unix nanoseconds
}

// Shards returns how many parts the queue has.
func (q *zkQueue) Shards() int { return q.shards }
