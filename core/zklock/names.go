package zklock

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

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
