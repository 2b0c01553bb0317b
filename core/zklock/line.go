package zklock

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// line is the members of a key, in the order of their creation. Those at its front hold the
// key. Nobody is granted the key before all who came earlier, so the names alone tell who
// holds it, except that a writer may have lowered its lease.
//
// A line that is read after a member was created shows all members before it that still exist.
// No member ever comes before an existing one. So a member that may hold the key once may hold
// it for good, even if the line was read from a server that lags behind.
type line []member

// parseLine orders the names of a key's nodes, and drops those that are not this driver's.
func parseLine(names []string) line {
	l := make(line, 0, len(names))
	for _, name := range names {
		if m, ok := parseMember(name); ok {
			l = append(l, m)
		}
	}
	slices.SortFunc(l, func(a, b member) int { return int(a.seq) - int(b.seq) })
	return l
}

// index returns the index of a member, or -1.
func (l line) index(name string) int {
	return slices.IndexFunc(l, func(m member) bool { return m.name == name })
}

// marked returns the member of an owner.
func (l line) marked(mark string) (m member, ok bool) {
	i := slices.IndexFunc(l, func(m member) bool { return m.mark == mark })
	if i < 0 {
		return member{}, false
	}
	return l[i], true
}

// holders returns how many members at the front hold the key. lowered says that the first, if it is
// a writer, has lowered its lease, so that others may hold the key too.
func (l line) holders(lowered bool) int {
	capacity := int32(math.MaxInt32)
	for i, m := range l {
		if m.capacity != 0 && (i > 0 || m.capacity != 1 || !lowered) {
			capacity = min(capacity, m.capacity)
		}
		if int32(i) >= capacity {
			return i
		}
	}
	return len(l)
}

// behind returns how many wait behind the holder at index i. lowered says that this holder has
// lowered its own lease. A writer before it must have lowered its lease, as it would not hold
// the key otherwise.
func (l line) behind(i int, lowered bool) int {
	return len(l) - max(l.holders(i > 0 || lowered), i+1)
}

// target returns the name of the member that the waiter at index i watches if there are n holders, or
// "" for all of the key. It is what has to
// change before the waiter can hold the key, so that a change only wakes waiters that it may let
// in. A writer watches the member before it. If that is let in together with others, it writes to its
// own node, so that the writer watches them all. Others watch the last writer before them, unless members in between wait
// for room in a semaphore: then they watch the member before them, or all of the key.
func (l line) target(i, n int) string {
	before := l[i-1].name
	if l[i].capacity == 1 || i == 1 {
		return before
	}
	j := i - 1
	for j >= 0 && l[j].capacity != 1 {
		j--
	}
	switch {
	case i == n && n > 1:
		return "" // any of several holders makes room
	case j >= 0 && l[j+1:].holders(false) > i-j-1:
		return l[j].name // all in between are let in together
	}
	return before
}

// DefaultRoot is the node under which every key has its own. It ends with the
// version of the protocol: another version would use another root, and not exclude
// this one.
const DefaultRoot = "/lockaround-1"

// keyName returns the name of a key's node: "=" and the key, in which every byte
// but letters, digits, ":", "_" and "-" is a "%" and two hexadecimal digits.
// ZooKeeper refuses or changes many other names, "." among them.
func keyName(key string) string {
	const digits = "0123456789ABCDEF"
	b := make([]byte, 1, len(key)+16)
	b[0] = '='
	for i := range len(key) {
		c := key[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == ':', c == '_', c == '-':
			b = append(b, c)
		default:
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

// mark returns a hash that stands for an owner in the name of its node. The servers log names,
// so the owner itself must not appear in one.
func mark(o driver.Owner) string {
	sum := sha256.Sum256(append([]byte("lockaround owner "), o[:]...))
	return hex.EncodeToString(sum[:16])
}

const (
	markLength = 32
	seqLength  = 10 // of the number that the server appends
)

// member is the node of one owner. Its name is one of these:
//
//	x-<mark>-<sequence>       exclusive
//	r-<mark>-<sequence>       shared
//	s<limit>-<mark>-<sequence> semaphore
type member struct {
	name     string
	mark     string
	capacity int32 // how many may hold the key together with it, itself included; 0 is any number
	seq      int32
}

// memberPrefix returns the name of an owner's node without the sequence.
func memberPrefix(m driver.Mode, limit int, o driver.Owner) string {
	kind := "x"
	switch m {
	case driver.Shared:
		kind = "r"
	case driver.Semaphore:
		kind = "s" + strconv.Itoa(min(limit, math.MaxInt32))
	}
	return kind + "-" + mark(o) + "-"
}

// parseMember parses the name of a node. ok is false if it is not one of this driver's.
func parseMember(name string) (m member, ok bool) {
	kind, rest, ok := strings.Cut(name, "-")
	if !ok || len(rest) != markLength+1+seqLength || rest[markLength] != '-' {
		return member{}, false
	}
	m = member{name: name, mark: rest[:markLength]}
	if _, err := hex.DecodeString(m.mark); err != nil {
		return member{}, false
	}
	seq, err := strconv.ParseUint(rest[markLength+1:], 10, 31)
	if err != nil {
		return member{}, false
	}
	m.seq = int32(seq)
	switch {
	case kind == "x":
		m.capacity = 1
	case kind == "r":
	case strings.HasPrefix(kind, "s"):
		limit, err := strconv.ParseUint(kind[1:], 10, 31)
		if err != nil || limit == 0 {
			return member{}, false
		}
		m.capacity = int32(limit)
	default:
		return member{}, false
	}
	return m, true
}

// mode returns the mode and the limit of the member's request.
func (m member) mode() (driver.Mode, int) {
	switch m.name[0] {
	case 'x':
		return driver.Exclusive, 0
	case 'r':
		return driver.Shared, 0
	}
	return driver.Semaphore, int(m.capacity)
}

// state is the state of a member.
type state uint8

const (
	placed  state = iota // in the line: it holds the key if its turn has come
	granted              // it has written since then
	lowered              // a granted writer that lets readers in
)

var stateNames = [...]string{placed: "placed", granted: "granted", lowered: "lowered"}

// record is the content of a member's node.
//
//	placed <milliseconds>
//	granted <milliseconds> <granted at, in milliseconds since 1970>
//	lowered <milliseconds> <granted at>
type record struct {
	state state
	ttl   time.Duration // how long the member lasts after this write
	since int64
}

func (r record) String() string {
	// Rounded up: the lease must not end at the servers before it ends for its holder.
	ms := (r.ttl + time.Millisecond - 1) / time.Millisecond
	s := stateNames[r.state] + " " + strconv.FormatInt(int64(ms), 10)
	if r.state != placed {
		s += " " + strconv.FormatInt(r.since, 10)
	}
	return s
}

// parseRecord parses a record. Unknown content is an error, so that a node of another version is
// never deleted.
func parseRecord(data []byte) (record, error) {
	bad := fmt.Errorf("a lock node says something else than this version writes, in %d bytes", len(data))
	words := strings.Split(string(data), " ")
	var r record
	switch words[0] {
	case "placed":
	case "granted":
		r.state = granted
	case "lowered":
		r.state = lowered
	default:
		return record{}, bad
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	var n [2]int64
	if want := 2 + min(1, int(r.state)); len(words) != want {
		return record{}, bad
	}
	for i, w := range words[1:] {
		var err error
		if n[i], err = strconv.ParseInt(w, 10, 64); err != nil || n[i] < 0 {
			return record{}, bad
		}
	}
	if n[0] > most {
		return record{}, bad
	}
	r.ttl, r.since = time.Duration(n[0])*time.Millisecond, n[1]
	return r, nil
}

// sinceOf returns when a lease was granted or, if its node has not been written since, asked for.
func sinceOf(r record, stat *zk.Stat) int64 {
	if r.state == placed {
		return stat.Ctime
	}
	return r.since
}

// remaining returns how long a lease still lasts. It compares the servers' time of the last
// write with this process's wall clock, which may differ.
func remaining(r record, stat *zk.Stat, now time.Time) time.Duration {
	return max(0, min(r.ttl, time.UnixMilli(stat.Mtime).Add(r.ttl).Sub(now)))
}
