package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

// newChannel returns the name of a session's channel, which no other session has. It ends with
// the identity of the session, if that has one: every vote and every place has the channel,
// so that the nodes need no field more.
func newChannel(identity string) string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	channel := KeyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	if identity != "" {
		channel += ":" + identity
	}
	return channel
}

// origin is where the owner's request came from. Sessions of releases that did not name their
// channels have no identity.
func (t taker) origin() driver.Origin {
	_, identity, _ := strings.Cut(strings.TrimPrefix(t.channel, KeyPrefix), ":")
	return driver.Origin{Identity: identity, Trace: driver.ParseTrace(t.trace)}
}

// taker is who holds the key as most of the nodes say whose answers are known.
func (a *acquisition) taker() (most taker) {
	votes := 0
	for i := range a.nodes {
		t := a.nodes[i].taker()
		if t.channel == "" {
			continue
		}
		n := a.count(func(other *nodeState) bool { return other.taker().channel == t.channel })
		if n > votes || t.channel == most.channel && most.trace == "" {
			votes, most = n, t
		}
	}
	return most
}

// taker is who holds the key as the node says.
func (n *nodeState) taker() taker {
	if !n.answered {
		return taker{}
	}
	return n.last.taker
}

// tellTaker tells the sink who holds the key, if that is new.
func (a *acquisition) tellTaker() {
	if t := a.taker(); t != a.told && t.channel != "" {
		a.told = t
		driver.TakenBy(a.s.sink, a.r.ID, t.origin())
	}
}
