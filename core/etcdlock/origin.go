package etcdlock

import (
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
)

// The name of a place ends with where it comes from. Whoever reads a queue reads the names of
// all places, so that this costs no key and no request more; and releases that do not name their
// places compare names only, and leave their ends alone. After the etcd lease follow a slash, the
// identity of the session, and for a traced request an asterisk and its trace.

// suffix returns the end of the name of a place that comes from there.
func suffix(from driver.Origin) string {
	if !from.Known() {
		return ""
	}
	end := "/" + from.Identity
	if from.Trace != nil {
		end += "*" + base64.RawURLEncoding.EncodeToString(from.Trace.Append(nil))
	}
	return end
}

// originOf returns where a place comes from, by its name.
func originOf(name string) (from driver.Origin) {
	parts := strings.SplitN(name, "/", 4) // the first three are the key's and of a fixed number
	place := parts[len(parts)-1]
	owner := hex.EncodedLen(len(driver.Owner{}))
	if len(parts) < 4 || len(place) <= owner || place[owner] != '/' {
		return from
	}
	identity, trace, _ := strings.Cut(place[owner+1:], "*")
	from.Identity = identity
	if b, err := base64.RawURLEncoding.DecodeString(trace); err == nil {
		from.Trace = driver.ParseTrace(string(b))
	}
	return from
}

// taker returns where the first of the places comes from whose owner holds the key.
func (q *queue) taker() driver.Origin {
	for i := range q.entries {
		if e := &q.entries[i]; e.stage == holding {
			return originOf(e.name)
		}
	}
	return driver.Origin{}
}
