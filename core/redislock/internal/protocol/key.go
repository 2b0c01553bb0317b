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
// hash tag in a Cluster.
func Key(key string) string {
	const escaped = "%{}"
	if !strings.ContainsAny(key, escaped) {
		return keyPrefix + key + keySuffix
	}
	var b strings.Builder
	b.Grow(len(keyPrefix) + len(key) + 2*8 + len(keySuffix))
	b.WriteString(keyPrefix)
	for i := range len(key) {
		switch key[i] {
		case '%':
			b.WriteString("%25")
		case '{':
			b.WriteString("%7B")
		case '}':
			b.WriteString("%7D")
		default:
			b.WriteByte(key[i])
		}
	}
	b.WriteString(keySuffix)
	return b.String()
}
