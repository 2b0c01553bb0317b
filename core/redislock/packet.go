package redislock

import (
	"errors"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// packet is what the client sends as one Redis command: one of our commands, or several
// that the server runs as one script, which takes it little more than half as long.
type packet []*command

// maxJoint bounds how many commands a server runs as one script. A command takes it a few
// microseconds, during which other clients wait.
const maxJoint = 64

// script returns the script that the server runs: the command's own, or Joint for several.
func (p packet) script() *protocol.Script {
	if len(p) == 1 {
		return p[0].script
	}
	return &protocol.Joint
}

// words appends the words of the Redis command: EVAL with the script's source or EVALSHA
// with its SHA, the keys and the arguments. A single key is a string, because a Cluster's
// client reads it. Several keys are pointers, which are cheaper; a Cluster never gets several.
func (p packet) words(to []any, source bool) []any {
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

// unpack sets the reply to each of the packet's commands.
func (p packet) unpack(to []reply, r reply) {
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
