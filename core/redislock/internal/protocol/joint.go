package protocol

import _ "embed"

//go:embed joint.lua
var jointSource string

// Joint runs several of the scripts [Acquire], [End] and [Renew], each on a key of its
// own: the server takes as long for a call of any script as for what most of these do.
// It takes the keys of all, which are on one server, and for each in that order what
// [JointArgs] appends; it answers a list of what each answers by itself: see [Failed].
var Joint = newJoint()

// letter names a script to Joint; nil if it cannot run it.
func letter(name string) any {
	switch name {
	case Acquire.Name:
		return "a"
	case End.Name:
		return "e"
	case Renew.Name:
		return "r"
	}
	return nil
}

// Joins reports whether [Joint] can run the script.
func Joins(s *Script) bool { return letter(s.Name) != nil }

// JointArgs appends the arguments of [Joint] for one script, which it can run, and that
// one's arguments.
func JointArgs(to []any, s *Script, args []any) []any {
	return append(append(to, letter(s.Name), len(args)), args...)
}

// Failed returns the error's text if the answer of a script that [Joint] ran is one.
func Failed(answer any) (text string, failed bool) {
	if list, ok := answer.([]any); ok && len(list) == 1 {
		text, failed = list[0].(string)
	}
	return text, failed
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
		source += "run." + letter(s.name).(string) + " = function(key, ARGV)\nlocal stamp = stamp\n" + s.short + preludeSource + s.general + "end\n"
	}
	return script("joint", source+jointSource)
}
