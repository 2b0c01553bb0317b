package redislock

import (
	"errors"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// maxJoint bounds how many commands a server runs as one, so that it is not kept from
// others for long: a command takes it a few microseconds.
const maxJoint = 64

// parcel is what the client sends as one command: one of ours, or several that the
// server runs as one, which takes it little more than half as long.
type parcel struct {
	script protocol.Script
	keys   []string
	args   []any
	source bool // send the script's source
	count  int  // of our commands
}

// pack makes parcels of commands, in their order. The keys of a Cluster are on several
// servers, and each goes alone.
func (w *clientWire) pack(cmds []command) []parcel {
	parcels := make([]parcel, 0, 1+len(cmds)/maxJoint)
	var together []protocol.Member
	finish := func() {
		switch len(together) {
		case 0:
			return
		case 1:
			m := together[0]
			parcels = append(parcels, parcel{script: m.Script, keys: []string{m.Key}, args: m.Args, count: 1})
		default:
			keys, args := protocol.JointArgs(together)
			parcels = append(parcels, parcel{script: protocol.Joint, keys: keys, args: args, count: len(together)})
		}
		together = together[:0]
	}
	for _, c := range cmds {
		if w.cluster != nil || c.source || !protocol.Joins(c.script) {
			finish()
			parcels = append(parcels, parcel{script: c.script, keys: []string{c.key}, args: c.args, source: c.source, count: 1})
			continue
		}
		if together = append(together, protocol.Member{Script: c.script, Key: c.key, Args: c.args}); len(together) == maxJoint {
			finish()
		}
	}
	finish()
	return parcels
}

// unpack returns the reply to each of a parcel's commands.
func (p *parcel) unpack(to []reply, r reply) []reply {
	if p.count == 1 {
		return append(to, r)
	}
	all, _ := r.value.([]any)
	if r.err == nil && len(all) != p.count {
		r.err = errors.New("a reply of the wrong length")
	}
	for i := range p.count {
		one := r
		if r.err == nil {
			one.value = all[i]
			if one.err, _ = all[i].(error); one.value == nil {
				one.err = errEmpty
			}
		}
		to = append(to, one)
	}
	return to
}

// errEmpty is the fault of a server that answers nothing.
var errEmpty = errors.New("an empty reply")
