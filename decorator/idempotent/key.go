package idempotent

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// MaxKeyBytes is the largest number of bytes of a key that a client chooses.
const MaxKeyBytes = 255

// ParseKey returns the key that a field named Idempotency-Key has, for surfaces whose clients
// choose keys. The field is a string of RFC 9651, as draft-ietf-httpapi-idempotency-key-header says, or the
// same without its quotes, as most clients send it: "8e03978e" and 8e03978e are one key.
//
// The error says what is wrong with the field, without its value: it is empty, longer than [MaxKeyBytes], or
// neither of the two. A bare key consists of visible ASCII characters but no quote, comma,
// semicolon or backslash: they belong to a list, or to parameters, and there is one key and nothing
// else. Spaces around it do not count.
func ParseKey(field string) (key string, err error) {
	field = strings.Trim(field, " \t")
	switch {
	case field == "" || field == `""`:
		return "", errors.New("it is empty")
	case field[0] != '"':
		key = field
		if i := strings.IndexFunc(key, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\",;\\", c) }); i >= 0 {
			return "", fmt.Errorf("it is malformed at byte %d", i)
		}
	default:
		if key, err = unquote(field); err != nil {
			return "", err
		}
	}
	if len(key) > MaxKeyBytes {
		return "", fmt.Errorf("it has %d bytes; at most %d are possible", len(key), MaxKeyBytes)
	}
	return key, nil
}

// Fingerprint is a SHA-256 of parts that a call acts on. Each has its length before it, so that no two lists of them are one text.
func Fingerprint(parts ...[]byte) [32]byte {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash never fails
		_, _ = h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}

// unquote reads a string by RFC 9651, section 4.2.5.
func unquote(field string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(field); i++ {
		c := field[i]
		if c == '\\' && i+1 < len(field) && (field[i+1] == '"' || field[i+1] == '\\') {
			i++
			key.WriteByte(field[i])
			continue
		}
		switch {
		case c == '"' && i == len(field)-1:
			return key.String(), nil
		case c < ' ' || c > '~' || c == '"' || c == '\\':
			return "", fmt.Errorf("it is malformed at byte %d", i)
		}
		key.WriteByte(c)
	}
	return "", errors.New("its quote does not end")
}
