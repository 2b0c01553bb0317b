package protocol

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1.
	_ "embed"
	"encoding/hex"
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
	//go:embed acquire_short.lua
	acquireShortSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed end_short.lua
	endShortSource string
	//go:embed end.lua
	endSource string
	//go:embed renew_short.lua
	renewShortSource string
	//go:embed renew.lua
	renewSource string
	//go:embed inspect.lua
	inspectSource string
	//go:embed oust.lua
	oustSource string
)

// The scripts. Each takes a single key.
var (
	// Acquire takes [AcquireArgs] and answers an [AcquireReply]. It enrols an
	// owner, refreshes its place in the queue, or extends its lease.
	Acquire = newScript("acquire", acquireShortSource, acquireSource)
	// End takes [EndArgs] and answers an [EndReply]. It releases a lease,
	// withdraws from the queue, and bars an owner from coming back.
	End = newScript("end", endShortSource, endSource)
	// Renew takes [RenewArgs] and answers a [RenewReply].
	Renew = newScript("renew", renewShortSource, renewSource)
	// Inspect takes no arguments and answers an [InspectReply]. It writes
	// nothing.
	Inspect = newScript("inspect", "", inspectSource)
	// Oust takes [OustArgs] and answers an [OustReply]. It ends leases, whoever
	// has them.
	Oust = newScript("oust", "", oustSource)
)

// Scripts returns all scripts.
func Scripts() []Script { return []Script{Acquire, End, Renew, Joint, Inspect, Oust} }

// newScript puts a script together from its short way, which may be empty, and
// its general way.
func newScript(name, short, general string) Script {
	return script(name, openingSource+short+preludeSource+general)
}

func script(name, source string) Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
