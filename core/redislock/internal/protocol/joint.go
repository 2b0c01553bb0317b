package protocol

import _ "embed"

//go:embed joint.lua
var jointSource string

// Joint runs several of the scripts [Acquire], [End] and [Renew] in one call, each on a key of
// its own, since a call costs the server as much as what most of them do. It takes the keys,
// which are on one server, and for each key in order what [JointArgs] appends. It answers a
// list of the scripts' replies: see [Failed].
var Joint = newJoint()

// jointCode returns the name of a script in the arguments of Joint, or nil if Joint cannot run
// it.
func jointCode(name string) any {
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
func Joins(s *Script) bool { return jointCode(s.Name) != nil }

// JointArgs appends the arguments of [Joint] for one script, followed by the script's own.
func JointArgs(to []any, s *Script, args []any) []any {
	return append(append(to, jointCode(s.Name), len(args)), args...)
}

// Failed reports whether a reply in the list of [Joint] is an error, and returns its text.
func Failed(answer any) (text string, failed bool) {
	if list, ok := answer.([]any); ok && len(list) == 1 {
		text, failed = list[0].(string)
	}
	return text, failed
}

// newJoint makes a function of each script. They share the time that the opening has read,
// and nothing else.
func newJoint() Script {
	source := openingSource + "local run = {}\n"
	for _, s := range []struct{ name, fast, general string }{
		{Acquire.Name, acquireFastSource, acquireSource},
		{End.Name, endFastSource, endSource},
		{Renew.Name, renewFastSource, renewSource},
	} {
		source += "run." + jointCode(s.name).(string) + " = function(key, ARGV)\nlocal stamp = stamp\n" + s.fast + preludeSource + s.general + "end\n"
	}
	return script("joint", source+jointSource)
}
