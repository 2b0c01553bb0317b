package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// PushKind says what a push reports.
type PushKind uint8

// The kinds of push.
const (
	// PushGrant: Owner, which waited, holds the lease.
	PushGrant PushKind = 'g'
	// PushWait: another owner asks for the key that Owner holds.
	PushWait PushKind = 'w'
	// PushLost: Owner's lease was taken from it.
	PushLost PushKind = 'l'
	// PushEnds: Owner is the first to wait for the key, and the present lease, or the time for
	// which the key is kept, ends in Left unless it is renewed. Earlier versions of this
	// module do not send it, and ignore it.
	PushEnds PushKind = 'e'
)

// Push is a message to a process's channel. It contains the owner, which is secret, so that
// nobody else can make a waiter believe that it holds the key.
type Push struct {
	Kind    PushKind
	Key     string // as [Key] returned it
	Owner   driver.Owner
	Token   int64 // the latest of the key; the owner's own in a PushGrant; 0 in a PushEnds
	Left    time.Duration
	Waiting int64 // entries in the queue
}

// ParsePush reads a message as scripts write it: the kind, the owner's bytes,
// "token:waiting:" and the key, which may hold any byte. A PushEnds has the ms that are left
// in the token's place.
func ParsePush(message string) (Push, error) {
	bad := func(what string) (Push, error) {
		return Push{}, fmt.Errorf("%w push: %s", ErrMalformed, what)
	}
	const head = 1 + len(driver.Owner{})
	if len(message) < head {
		return bad("too short")
	}
	p := Push{Kind: PushKind(message[0])}
	switch p.Kind {
	case PushGrant, PushWait, PushLost, PushEnds:
	default:
		return bad("an unknown kind")
	}
	copy(p.Owner[:], message[1:head])
	token, rest, ok1 := strings.Cut(message[head:], ":")
	waiting, key, ok2 := strings.Cut(rest, ":")
	if !ok1 || !ok2 {
		return bad("no token or number of waiters")
	}
	var ok bool
	if p.Token, ok = parseNumber(token); !ok || p.Token == 0 {
		return bad("a token out of range")
	}
	if p.Kind == PushEnds {
		p.Token, p.Left = 0, time.Duration(min(p.Token, MaxPlaceTTL.Milliseconds()))*time.Millisecond
	}
	if p.Waiting, ok = parseNumber(waiting); !ok {
		return bad("a number of waiters out of range")
	}
	if key == "" {
		return bad("no key")
	}
	p.Key = key
	return p, nil
}
