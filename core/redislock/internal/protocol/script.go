package protocol

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core/internal/kit"
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
	// Take takes [TakeArgs] and answers a stream ID, 1 or nil: see take.lua. It grants an owner an absent key. Outside
	// of a Cluster two native commands do the same: see words in core/redislock/client.go.
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
	return Script{Name: name, Source: source, SHA: kit.ScriptName(source)}
}

// The protocol's version is part of every key, so that a later, different
// protocol never takes this one's keys for its own.
const (
	keyPrefix = "la2:{"
	keySuffix = "}:"
)

// Shards is how many streams draw tokens, at most. In a Cluster a stream has the keys of one slot
// only, and a shard is in one slot. A stream takes nearly 5 kB, so that all take 1.2 MB.
const Shards = 256

// Key returns the Redis key of a lock's key, which may hold any byte. Different
// keys give different results. The shard between the braces is the hash tag in a Cluster.
func Key(key string) string {
	n := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		n = (n ^ uint32(key[i])) * 16777619
	}
	const hex = "0123456789abcdef"
	n = (n ^ n>>8 ^ n>>16 ^ n>>24) % Shards
	return keyPrefix + string([]byte{hex[n>>4], hex[n&15]}) + keySuffix + key
}

// shard is the length of what [Key] puts before a key, without the last colon.
const shard = len(keyPrefix) + 2 + 1

// Named reports whether a name may be one of [Key].
func Named(name string) bool { return len(name) > shard && strings.HasPrefix(name, keyPrefix) }

// Stream returns the stream that draws the tokens of a name, whether [Key] returned it or not.
func Stream(name string) string {
	if !Named(name) {
		name = Key(name)
	}
	return name[:shard]
}

// ParseKey is the inverse of [Key]. ok is false if Key returns no such name.
func ParseKey(name string) (key string, ok bool) {
	if len(name) <= shard || Key(name[shard+1:]) != name {
		return "", false
	}
	return name[shard+1:], true
}

// Pattern returns a pattern, for SCAN's MATCH, of the names of all keys that begin with prefix.
func Pattern(prefix string) string {
	return fmt.Sprintf("%s??%s%s*", keyPrefix, keySuffix, glob.Replace(prefix))
}

// glob escapes what has a meaning in a pattern of Redis.
var glob = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// Tokens are drawn from a stream, see [Stream], by XADD with an ID of *. Such an ID is the server's
// time in ms and a number. It rises also when the clock goes back, across a restart with
// persistence, and across a failover unless the new master's clock is behind. A token is the ms
// times 1,000, and the number: about the server's time in microseconds. A stream that is not there,
// since nobody has drawn or the server has lost its data, begins at a number by the microsecond: see [BeginStream].
const perMS = 1000

// Drawn is the ID of an entry of a stream.
type Drawn struct{ ms, number int64 }

// ParseDrawn reads the reply of XADD.
func ParseDrawn(reply any) (Drawn, error) {
	id, _ := reply.(string)
	ms, number, ok := strings.Cut(id, "-")
	var d Drawn
	var ok1, ok2 bool
	d.ms, ok1 = parseNumber(ms)
	d.number, ok2 = parseNumber(number)
	if !ok || !ok1 || !ok2 || d.ms == 0 || d.ms > maxToken/perMS-1 {
		return Drawn{}, fmt.Errorf("%w draw: %T that is no ID of a stream", ErrMalformed, reply)
	}
	return d, nil
}

// Token returns the token. It is 0, which is none, if all have been drawn in one ms of the
// stream, whose clock is behind: see [Drawn.Raise].
func (d Drawn) Token() int64 {
	if d.number >= perMS {
		return 0
	}
	return d.ms*perMS + d.number
}

// Raise returns the ID of an entry to be added to the stream, so that it goes on with the next ms.
// It is "" while there is no need.
func (d Drawn) Raise() string {
	if d.number < perMS/2 {
		return ""
	}
	return strconv.FormatInt(d.ms+1, 10) + "-0"
}
