package protocol

import _ "embed"

//go:embed joint.lua
var jointSource string

// Joint runs several of the scripts [Acquire], [End] and [Renew], each on a key of its
// own: the server takes as long for a call of any script as for what most of these do.
// It takes the [Member]s' keys, which are all on one server, and [JointArgs]; it
// answers a list of what each answers by itself, which may be an error.
var Joint = newJoint()

// Member is one run of a script by [Joint].
type Member struct {
	Script Script
	Key    string
	Args   []any
}

// letter names a script to Joint; empty if it cannot run it.
func letter(name string) string {
	switch name {
	case Acquire.Name:
		return "a"
	case End.Name:
		return "e"
	case Renew.Name:
		return "r"
	}
	return ""
}

// Joins reports whether [Joint] can run the script.
func Joins(s Script) bool { return letter(s.Name) != "" }

// JointArgs returns the keys and arguments of [Joint] for members that it can run.
func JointArgs(members []Member) (keys []string, args []any) {
	keys = make([]string, len(members))
	args = make([]any, 0, 6*len(members))
	for i, m := range members {
		keys[i] = m.Key
		args = append(args, letter(m.Script.Name), len(m.Args))
		args = append(args, m.Args...)
	}
	return keys, args
}

// newJoint makes a function of each script. What the opening has read of the time is
// the same for all; the rest is each one's own.
func newJoint() Script {
	source := openingSource + "local run = {}\n"
	for _, s := range []struct{ name, short, general string }{
		{Acquire.Name, acquireShortSource, acquireSource},
		{End.Name, endShortSource, endSource},
		{Renew.Name, renewShortSource, renewSource},
	} {
		source += "run." + letter(s.name) + " = function(key, ARGV)\nlocal stamp = stamp\n" + s.short + preludeSource + s.general + "end\n"
	}
	return script("joint", source+jointSource)
}
