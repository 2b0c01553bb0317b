package redlock

import "github.com/lockaround/lockaround/core/driver"

// push is what a node tells a session about one of its owners: one letter and the owner.
type push struct {
	kind  byte
	owner driver.Owner
}

const (
	pushFree   byte = 'f' // the owner waits, and the node's vote may be had
	pushWanted byte = 'w' // somebody else wants the key that the owner has
	pushLost   byte = 'l' // the owner's lease was ousted
)

// parsePush reads a payload; false: it is not of this protocol.
func parsePush(payload string) (push, bool) {
	var p push
	if len(payload) != 1+len(p.owner) {
		return p, false
	}
	p.kind = payload[0]
	copy(p.owner[:], payload[1:])
	return p, p.kind == pushFree || p.kind == pushWanted || p.kind == pushLost
}
