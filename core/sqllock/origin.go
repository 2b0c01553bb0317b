package sqllock

import (
	"bytes"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// The column origin of a claim says where it comes from: the identity of its session and, after
// a zero byte, the trace of its request. Tables of earlier releases do not have the column until
// Migrate is called, and sessions do without it.

// origin returns what the column holds. It is not nil, which would be NULL.
func origin(from driver.Origin) []byte {
	b := append([]byte{}, from.Identity...)
	if from.Trace != nil {
		b = from.Trace.Append(append(b, 0))
	}
	return b
}

// originOf reads the column.
func originOf(column []byte) driver.Origin {
	identity, trace, _ := bytes.Cut(column, []byte{0})
	return driver.Origin{Identity: string(identity), Trace: driver.ParseTrace(string(trace))}
}

// taker returns where one of the leases comes from.
func (k *keyState) taker() driver.Origin {
	for i := range k.claims {
		if c := &k.claims[i]; c.state == holds {
			return c.from
		}
	}
	return driver.Origin{}
}

// tables knows whether the tables have the column.
type tables struct {
	q, unnamed *queries     // with the column, and without it
	old        atomic.Int64 // they have not got it, at least until then; in nanoseconds since 1970
}

// recheck is how long a session does without the column before it looks for it again.
const recheck = time.Minute

func (t *tables) init(c config) { t.q, t.unnamed = c.q, newQueries(c.d, false) }

// queries returns those for the tables as they were last seen.
func (t *tables) queries() *queries {
	if time.Now().UnixNano() < t.old.Load() {
		return t.unnamed
	}
	return t.q
}

// run calls f, and once more if the tables turn out not to have the column. f has changed
// nothing then: it begins by reading claims.
func (t *tables) run(f func(*queries) error) error {
	q := t.queries()
	err := f(q)
	if c := code(err); q == t.q && (c == "42703" || c == "1054") {
		t.old.Store(time.Now().Add(recheck).UnixNano())
		return f(t.unnamed)
	}
	return err
}
