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
type parcel []*command

// pack appends parcels of the commands, in their order. The keys of a Cluster are on
// several servers, and each goes alone.
func (w *clientWire) pack(to []parcel, cmds []*command) []parcel {
	for len(cmds) > 0 {
		n := 0
		for n < min(len(cmds), maxJoint) && w.cluster == nil && !cmds[n].source && protocol.Joins(cmds[n].script) {
			n++
		}
		n = max(n, 1)
		to, cmds = append(to, cmds[:n:n]), cmds[n:]
	}
	return to
}

// script is what the server runs.
func (p parcel) script() *protocol.Script {
	if len(p) == 1 {
		return p[0].script
	}
	return &protocol.Joint
}

// request appends what is sent: the script's name or its source, the keys and the
// arguments. Where there are several keys they are no Cluster's, whose client would
// read them, and go as pointers, which are cheaper.
func (p parcel) request(to []any, source bool) []any {
	s := p.script()
	if source {
		to = append(to, "eval", s.Source, len(p))
	} else {
		to = append(to, "evalsha", s.SHA, len(p))
	}
	if len(p) == 1 {
		return append(append(to, p[0].key), p[0].args...)
	}
	for _, c := range p {
		to = append(to, &c.key)
	}
	for _, c := range p {
		to = protocol.JointArgs(to, c.script, c.args)
	}
	return to
}

// unpack sets the reply to each of the parcel's commands.
func (p parcel) unpack(to []reply, r reply) {
	if len(p) == 1 {
		to[0] = r
		return
	}
	all, _ := r.value.([]any)
	if r.err == nil && len(all) != len(p) {
		r.err = errors.New("a reply of the wrong length")
	}
	for i := range p {
		to[i] = r
		if r.err == nil {
			to[i].value = all[i]
			if text, failed := protocol.Failed(all[i]); failed {
				to[i].err = serverError(text)
			} else if all[i] == nil {
				to[i].err = errEmpty
			}
		}
	}
}

// errEmpty is the fault of a server that answers nothing.
var errEmpty = errors.New("an empty reply")
