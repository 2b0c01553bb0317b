package core

import (
	"os"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
)

// defaultIdentity is the identity of engines without [WithIdentity].
var defaultIdentity = sync.OnceValue(func() string {
	host, _ := os.Hostname() // without a name, the process's ID has to do
	return identityOf(host, os.Getpid())
})

// identityOf returns the name of a process on a host. Bytes that an identity cannot have are
// replaced, and a name that is too long loses its end.
func identityOf(host string, pid int) string {
	end := ":" + strconv.Itoa(pid)
	b := []byte(host[:min(len(host), driver.MaxIdentity-len(end))])
	for i := range b {
		if !driver.ValidIdentity(string(b[i : i+1])) {
			b[i] = '-'
		}
	}
	return string(b) + end
}

// shown is an identity as it was read from a store, or empty if no engine can be called that.
func shown(identity string) string {
	if driver.ValidIdentity(identity) {
		return identity
	}
	return ""
}

// spanOf returns the IDs of a holder's trace and span; zero if they are not known.
func spanOf(o driver.Origin) (trace.TraceID, trace.SpanID) {
	if o.Trace == nil {
		return trace.TraceID{}, trace.SpanID{}
	}
	return o.Trace.TraceID, o.Trace.SpanID
}
