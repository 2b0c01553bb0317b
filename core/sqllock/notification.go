package sqllock

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/lockaround/lockaround/core/driver"
)

// sessionID identifies a session. It is random.
type sessionID [16]byte

func newSessionID() (n sessionID) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}

// notification is the payload of a NOTIFY, and the channel it goes to.
type notification struct{ channel, payload string }

// The kinds of notification. Each is followed by the hash of the owner that it is for.
const (
	notifyGranted   = 'g' // it was granted the key
	notifyContended = 'w' // somebody else waits for the key, or has asked for it
	notifyLost      = 'l' // its lease was ousted
	notifyKept      = 'k' // the lease that it waits for now ends at another time
)

// channel returns the channel on which a session listens.
func channel(n sessionID) string { return "lockaround_" + hex.EncodeToString(n[:]) }

// ownerHash identifies an owner in a notification, without disclosing the owner to others
// who listen.
func ownerHash(o driver.Owner) string {
	sum := sha256.Sum256(o[:])
	return hex.EncodeToString(sum[:8])
}

// parsePayload splits a payload into its kind and the hash of its owner.
func parsePayload(payload string) (kind byte, of string, ok bool) {
	const length = 1 + 16
	if len(payload) != length {
		return 0, "", false
	}
	switch payload[0] {
	case notifyGranted, notifyContended, notifyLost, notifyKept:
		return payload[0], payload[1:], true
	}
	return 0, "", false
}
