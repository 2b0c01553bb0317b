package zkqueue

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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

// paths are the nodes of a queue:
//
//	<root>/1=<name>            data: the largest sequence of the keys that were forgotten
//	  /k/<digest>              data: the record of a key
//	  /k/<digest>/<sequence>   data: an item
//	  /k/<digest>/=<digest>    data: the sequence of the item with that ID
//	  /d<shard>/<entry>        a key with items: when it is due
//	  /w<shard>                data: when a key of the shard is due, written to wake listeners
//	  /i<n>/<entry>            a key without items: when it is forgotten
//	  /c                       written to read the clock
type paths struct {
	base string
	n    int // shards
}

// idleParts is over how many nodes the keys without items are spread.
const idleParts = 16

// pathsOf returns the nodes of a queue. The 1 is the version of the layout.
func pathsOf(root, name string, shards int) paths { return paths{root + "/1=" + escape(name), shards} }

// escape writes every byte but letters, digits, ":", "_" and "-" as "%" and two hexadecimal
// digits. ZooKeeper refuses or changes many other names.
func escape(name string) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == ':', c == '_', c == '-':
			b = append(b, c)
		default:
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

func (p paths) keys() string              { return p.base + "/k" }
func (p paths) tick() string              { return p.base + "/c" }
func (p paths) key(digest string) string  { return p.base + "/k/" + digest }
func (p paths) due(shard int) string      { return p.base + "/d" + strconv.Itoa(shard) }
func (p paths) wakeup(shard int) string   { return p.base + "/w" + strconv.Itoa(shard) }
func (p paths) idle(part int) string      { return p.base + "/i" + strconv.Itoa(part) }
func (p paths) shardOf(digest string) int { return int(hash(digest) % uint32(p.n)) }

func (p paths) item(digest string, sequence int64) string {
	return p.key(digest) + "/" + strconv.FormatInt(sequence, 10)
}

// id is the node of an item's ID, by a digest, since an ID may be long and have any bytes.
func (p paths) id(digest string, id []byte) string {
	sum := sha256.Sum256(id)
	return p.key(digest) + "/=" + base64.RawURLEncoding.EncodeToString(sum[:])
}

func (p paths) entry(e entry) string {
	if e.kind == idle {
		return p.idle(int(hash(e.digest)%idleParts)) + "/" + e.String()
	}
	return p.due(p.shardOf(e.digest)) + "/" + e.String()
}

func hash(digest string) uint32 { return crc32.ChecksumIEEE([]byte(digest)) }

// kind is why a key has an entry.
type kind byte

const (
	since   kind = 'n' // it has been due since then
	due     kind = 'd' // it is due then
	claimed kind = 'c' // a claim on it ends then
	parked  kind = 'p' // it has been parked since then
	idle    kind = 'i' // it is to be forgotten then
)

// entry is a node that names a key and a time, so that the answer to one getChildren says
// which keys are due. Each key has exactly one.
type entry struct {
	kind   kind
	at     int64 // in milliseconds
	digest string
}

const (
	digestLength = 22
	entryLength  = 12 + 1 + digestLength
)

// String is the entry's name: the time in hexadecimal digits, the kind, the digest.
func (e entry) String() string {
	return fmt.Sprintf("%012x%c%s", max(e.at, 0)&(1<<48-1), e.kind, e.digest)
}

// parseEntry parses a name; ok is false if it is none of this store's.
func parseEntry(name string) (e entry, ok bool) {
	if len(name) != entryLength {
		return entry{}, false
	}
	at, err := strconv.ParseUint(name[:12], 16, 48)
	e = entry{kind: kind(name[12]), at: int64(at), digest: name[13:]}
	return e, err == nil && e.String() == name
}

// handshake is how long a server may take to answer a connection's first request.
const handshake = 10 * time.Second

// Dial connects for the client library: zk.WithDialer(zkqueue.Dial). It mends two faults of the library.
//
// The library waits ten times the session's time-out for the answer to a connection's first
// request, and tries no other server meanwhile. This one may be starting, or stopped: Dial gives it
// 10 s.
//
// The library reads the number of the latest transaction while another goroutine writes it, to tell a server when it
// connects again which events it has seen. Dial hides the numbers from it. So after each
// reconnection a watch fires at once, and none is lost.
func Dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, addr, max(timeout, handshake))
	if err != nil {
		return nil, err
	}
	return &link{Conn: conn, limit: time.Now().Add(handshake)}, nil
}

// link is a connection of the client library. It goes through what is received, message by message: a
// length, the number of a request, that of a transaction, and the rest. The first message answers the
// handshake and is another one.
type link struct {
	net.Conn
	limit time.Time // of the handshake

	up   bool    // the handshake is over
	head [4]byte // the length of a message
	at   int64   // how much of the message was read, with its length
}

const (
	zxidAt  = 8
	zxidEnd = 16
)

// SetReadDeadline bounds the handshake, whatever the library asks for.
func (l *link) SetReadDeadline(t time.Time) error {
	if !l.up && (t.IsZero() || t.After(l.limit)) {
		t = l.limit
	}
	return l.Conn.SetReadDeadline(t)
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.scan(b[:n])
	return n, err
}

// scan clears the numbers of transactions.
func (l *link) scan(b []byte) {
	for len(b) > 0 {
		if l.at < int64(len(l.head)) {
			n := copy(l.head[l.at:], b)
			l.at += int64(n)
			b = b[n:]
			continue
		}
		size := int64(len(l.head)) + int64(binary.BigEndian.Uint32(l.head[:]))
		n := min(int64(len(b)), size-l.at)
		if l.up {
			clear(b[min(n, max(0, zxidAt-l.at)):min(n, max(0, zxidEnd-l.at))])
		}
		l.at += n
		b = b[n:]
		if l.at == size {
			l.at, l.up = 0, true
		}
	}
}
