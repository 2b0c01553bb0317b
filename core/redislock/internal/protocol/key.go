package protocol

import "strings"

// The protocol's version is part of every key, so that a later, different
// protocol never takes this one's hashes for its own.
const (
	keyPrefix = "la1:{"
	keySuffix = "}"
)

// Key returns the Redis key of a lock's key, which may hold any byte. Different
// keys give different results. The part between the braces, all of it, is the
// hash tag in a Cluster, so that braces in the key are written \( and \), and a
// backslash twice.
func Key(key string) string {
	if !strings.ContainsAny(key, `\{}`) {
		return keyPrefix + key + keySuffix
	}
	var b strings.Builder
	b.Grow(len(keyPrefix) + len(key) + 2*8 + len(keySuffix))
	b.WriteString(keyPrefix)
	for i := range len(key) {
		switch key[i] {
		case '\\':
			b.WriteString(`\\`)
		case '{':
			b.WriteString(`\(`)
		case '}':
			b.WriteString(`\)`)
		default:
			b.WriteByte(key[i])
		}
	}
	b.WriteString(keySuffix)
	return b.String()
}
