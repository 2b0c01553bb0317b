package template

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	// maxPart is the largest length in bytes of one rendered value.
	maxPart = 200

	// hashMark stands before the hash of a long value. An encoded value has
	// two hexadecimal digits after every percent sign, so the mark occurs in
	// none, and a long value never renders like a short one.
	hashMark = "%~"

	// keptOfLong is how much of a long value's encoding stays readable.
	keptOfLong = maxPart - len(hashMark) - 2*sha256.Size
)

// Escape returns what a placeholder renders for value, as core.Escape says.
func Escape(value string) string {
	if len(value) <= maxPart && isPlain(value) {
		return value
	}
	var buf [maxPart + len("%XX")]byte
	return string(appendEscaped(buf[:0], value))
}

// appendEscaped appends what [Escape] returns: at most maxPart bytes.
func appendEscaped[S string | []byte](dst []byte, value S) []byte {
	const digits = "0123456789ABCDEF"
	start, kept := len(dst), len(dst)
	for i := range len(value) {
		c := value[i]
		if plain[c] {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&0xf])
		}
		switch n := len(dst) - start; {
		case n <= keptOfLong:
			kept = len(dst)
		case n > maxPart:
			sum := sha256.Sum256([]byte(value))
			dst = append(dst[:kept], hashMark...)
			return hex.AppendEncode(dst, sum[:])
		}
	}
	return dst
}

func isPlain(value string) bool {
	for i := range len(value) {
		if !plain[value[i]] {
			return false
		}
	}
	return true
}

// plain holds the bytes that a rendered value keeps as they are: the
// unreserved characters of RFC 3986.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '~' || c == '-'
	}
	return t
}()

// separates reports whether c can occur in no rendered value.
func separates(c byte) bool { return !plain[c] && c != '%' }
