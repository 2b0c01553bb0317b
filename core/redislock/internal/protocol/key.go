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

// ParseKey is the inverse of [Key]. ok is false if Key returns no such name.
func ParseKey(name string) (key string, ok bool) {
	inner, ok := strings.CutPrefix(name, keyPrefix)
	if !ok {
		return "", false
	}
	if inner, ok = strings.CutSuffix(inner, keySuffix); !ok {
		return "", false
	}
	if !strings.ContainsAny(inner, `\{}`) {
		return inner, true
	}
	b := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); i++ {
		switch c := inner[i]; c {
		case '{', '}':
			return "", false
		case '\\':
			if i++; i == len(inner) {
				return "", false
			}
			at := strings.IndexByte(`\()`, inner[i])
			if at < 0 {
				return "", false
			}
			b = append(b, `\{}`[at])
		default:
			b = append(b, c)
		}
	}
	return string(b), true
}

// Pattern returns a pattern, for SCAN's MATCH, of the names of all keys that begin with prefix.
func Pattern(prefix string) string {
	name := strings.TrimSuffix(Key(prefix), keySuffix)
	return glob.Replace(name) + "*"
}

// glob escapes what has a meaning in a pattern of Redis.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
