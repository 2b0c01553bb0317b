package redislock

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Every lease and every place in the queue has the channel of its session's pushes. So the
// channel's name ends with the identity of the session, and the server is told it without a
// field, an argument or a command more.

// ChannelPrefix begins the name of the Pub/Sub channel of every session. Random text follows,
// and a colon and the session's identity, if it has one. Grant a user of an ACL "&la2:*".
const ChannelPrefix = "la2:"

// randomChannel returns the name of a channel that no other session has.
func randomChannel() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	return ChannelPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// named returns the name of a channel with the identity of its session.
func named(channel, identity string) string {
	if identity == "" {
		return channel
	}
	return channel + ":" + identity
}

// originOf returns who a script says holds a key. Sessions of releases that did not name their
// channels have no identity.
func originOf(t protocol.Taker) driver.Origin {
	_, identity, _ := strings.Cut(strings.TrimPrefix(t.Channel, ChannelPrefix), ":")
	return driver.Origin{Identity: identity, Trace: driver.ParseTrace(t.Trace)}
}
