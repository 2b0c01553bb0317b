package protocol

import (
	"fmt"
	"strings"
)

// The protocol's version is part of every key, so that a later, different
// protocol never takes this one's keys for its own.
const (
	keyPrefix = "la2:{"
	keySuffix = "}:"
)

// Shards is how many streams draw tokens, at most. In a Cluster a stream has the keys of one slot
// only, and a shard is in one slot. A stream takes nearly 5 kB, so that all take 1.2 MB.
const Shards = 256

// Key returns the Redis key of a lock's key, which may hold any byte. Different
// keys give different results. The shard between the braces is the hash tag in a Cluster.
func Key(key string) string {
	n := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		n = (n ^ uint32(key[i])) * 16777619
	}
	const hex = "0123456789abcdef"
	n = (n ^ n>>8 ^ n>>16 ^ n>>24) % Shards
	return keyPrefix + string([]byte{hex[n>>4], hex[n&15]}) + keySuffix + key
}

// shard is the length of what [Key] puts before a key, without the last colon.
const shard = len(keyPrefix) + 2 + 1

// Named reports whether a name may be one of [Key].
func Named(name string) bool { return len(name) > shard && strings.HasPrefix(name, keyPrefix) }

// Stream returns the stream that draws the tokens of a name, whether [Key] returned it or not.
func Stream(name string) string {
	if !Named(name) {
		name = Key(name)
	}
	return name[:shard]
}

// ParseKey is the inverse of [Key]. ok is false if Key returns no such name.
func ParseKey(name string) (key string, ok bool) {
	if len(name) <= shard || Key(name[shard+1:]) != name {
		return "", false
	}
	return name[shard+1:], true
}

// Pattern returns a pattern, for SCAN's MATCH, of the names of all keys that begin with prefix.
func Pattern(prefix string) string {
	return fmt.Sprintf("%s??%s%s*", keyPrefix, keySuffix, glob.Replace(prefix))
}

// glob escapes what has a meaning in a pattern of Redis.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
