package queue

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Digest names a key without showing it: 22 characters of the URL-safe base64 alphabet, of
// the first 16 bytes of its SHA-256. Whoever can guess a key can recognise its digest.
func Digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// ItemName is a Place.ID for stores that have no shorter name of their own: the digest of the
// key, a dot, and the item's ID.
func ItemName(key, id string) string { return Digest(key) + "." + id }

// SplitName returns the parts of an [ItemName]. ok is false if it is none.
func SplitName(name string) (digest, id string, ok bool) {
	digest, id, ok = strings.Cut(name, ".")
	return digest, id, ok && len(digest) == 22 && id != ""
}
