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
	//go:embed take.lua
	takeSource string
	//go:embed drawn.lua
	drawnSource string
	//go:embed opening.lua
	openingSource string
	//go:embed prelude.lua
	preludeSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed end_thin.lua
	endThinSource string
	//go:embed end.lua
	endSource string
	//go:embed renew_thin.lua
	renewThinSource string
	//go:embed renew.lua
	renewSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed oust.lua
	oustSource string
)

// The scripts. Each takes a single key but Take, which also takes the key's [Stream].
var (
	// Take takes [TakeArgs] and answers a [TakeReply]. It grants an owner an absent key. Outside
	// of a Cluster two native commands do the same: see [TakeArgs.Native].
	Take = newScript("take", drawnSource+takeSource)
	// Acquire takes [AcquireArgs] and answers an [AcquireReply]. It grants an owner the
	// key or a place in the queue, refreshes the place, or extends the lease.
	Acquire = general("acquire", "", acquireSource)
	// End takes [EndArgs] and answers an [EndReply]. It releases a lease,
	// removes an owner from the queue, and may refuse later requests of it.
	End = general("end", endThinSource, endSource)
	// Renew takes [RenewArgs] and answers a [RenewReply].
	Renew = general("renew", renewThinSource, renewSource)
	// Inspect takes no arguments and answers an [InspectReply]. It writes
	// nothing.
	Inspect = general("inspect", "", inspectSource)
	// Oust takes [OustArgs] and answers an [OustReply]. It ends leases, whoever
	// has them.
	Oust = general("oust", "", oustSource)
)

// BeginStream is the source of a script that adds an entry to a stream, or begins it. It is small, and
// sent by EVAL for the first token of a stream.
var BeginStream = drawnSource + "return drawn(redis.call, KEYS[1])\n"

// Scripts returns all scripts.
func Scripts() []Script { return []Script{Take, Acquire, End, Renew, Inspect, Oust} }

// general puts a script together from what it does for a key that is a string, which may be
// empty, and its general path.
func general(name, thin, source string) Script {
	return newScript(name, thin+openingSource+drawnSource+preludeSource+source)
}

func newScript(name, source string) Script {
	return Script{Name: name, Source: source, SHA: scriptname.Of(source)}
}
