package zkqueue

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strconv"
)

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
