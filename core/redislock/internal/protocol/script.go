package protocol

import (
	_ "embed"

	"github.com/lockaround/lockaround/core/internal/scriptname"
)

// Script is one operation. It takes one key, see [Key], and the arguments of
// the like-named type.
type Script struct {
	Name   string
	Source string // for EVAL and SCRIPT LOAD
	SHA    string // for EVALSHA: 40 lower-case hex digits
}

var (
	//go:embed opening.lua
	openingSource string
	//go:embed prelude.lua
	preludeSource string
	//go:embed acquire_fast.lua
	acquireFastSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed end_fast.lua
	endFastSource string
	//go:embed end.lua
	endSource string
	//go:embed renew_fast.lua
	renewFastSource string
	//go:embed renew.lua
	renewSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed oust.lua
	oustSource string
)

// The scripts. Each takes a single key.
var (
	// Acquire takes [AcquireArgs] and answers an [AcquireReply]. It grants an owner the
	// key or a place in the queue, refreshes the place, or extends the lease.
	Acquire = newScript("acquire", acquireFastSource, acquireSource)
	// End takes [EndArgs] and answers an [EndReply]. It releases a lease,
	// removes an owner from the queue, and refuses later requests of it.
	End = newScript("end", endFastSource, endSource)
	// Renew takes [RenewArgs] and answers a [RenewReply].
	Renew = newScript("renew", renewFastSource, renewSource)
	// Inspect takes no arguments and answers an [InspectReply]. It writes
	// nothing.
	Inspect = newScript("inspect", "", inspectSource)
	// Oust takes [OustArgs] and answers an [OustReply]. It ends leases, whoever
	// has them.
	Oust = newScript("oust", "", oustSource)
)

// Scripts returns all scripts.
func Scripts() []Script { return []Script{Acquire, End, Renew, Joint, Inspect, Oust} }

// newScript puts a script together from its fast path, which may be empty, and
// its general path.
func newScript(name, fast, general string) Script {
	return script(name, openingSource+fast+preludeSource+general)
}

func script(name, source string) Script {
	return Script{Name: name, Source: source, SHA: scriptname.Of(source)}
}
