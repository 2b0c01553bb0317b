package core

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// WithIdentity sets what operators call this process, such as a pod's name. It is stored with
// each lease, for [Engine.Inspect], for the log of calls that did not get their lock, and for
// the spans of those that waited:
//
//	locks, err := core.New(redislock.New(rdb), core.WithIdentity(os.Getenv("POD_NAME")))
//
// It has 1 to 64 bytes: ASCII letters, digits and . _ - : / @ + = , # ~ and %. New refuses
// others, and drivers that cannot store it. Whoever may read the store can read it, so that it
// is no place for a secret, and nothing is decided by it: two processes may have the same. It
// is never told to a client. The default is the host's name, a colon and the process's ID.
func WithIdentity(identity string) Option {
	return optionFunc(func(s *settings) { s.identity = &identity })
}

// name sets what the engine is called, or says why it cannot be.
func (e *Engine) name() error {
	stores := func(c driver.Capabilities) bool { return c.Identity }
	switch id := e.settings.identity; {
	case id == nil:
		e.identity = defaultIdentity()
	case *id == "":
		return fmt.Errorf("%w: WithIdentity: the identity is empty; leave the option out for the host's name and the process's ID", ErrPolicy)
	case len(*id) > driver.MaxIdentity:
		return fmt.Errorf("%w: WithIdentity: the identity has %d bytes; use at most %d", ErrPolicy, len(*id), driver.MaxIdentity)
	case !driver.ValidIdentity(*id):
		return fmt.Errorf("%w: WithIdentity(%q): use ASCII letters, digits and . _ - : / @ + = , # ~ and %% only", ErrPolicy, *id)
	case !stores(e.caps):
		return fmt.Errorf("%w: WithIdentity: %s; leave the option out", ErrPolicy, e.lacks(stores))
	default:
		e.identity = *id
	}
	return nil
}

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

// noteTaken says at the level of debugging that a call found its key taken, and by whom. It
// has the context of the call, for a handler that adds the trace.
func (e *Engine) noteTaken(ctx context.Context, policy string, r *queue.Refusal) {
	if r.Why != queue.Busy && r.Why != queue.Timeout {
		return
	}
	log := e.log()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	about := []slog.Attr{
		slog.String("lock.name", policy), slog.String("lock.driver", e.caps.Name),
		slog.String("lock.outcome", r.Outcome(signals.Failed).String()),
	}
	if holder := shown(r.Holder.Identity); holder != "" {
		about = append(about, slog.String("lock.holder", holder))
	}
	if traceID, spanID := spanOf(r.Holder); traceID.IsValid() {
		about = append(about, slog.String("lock.holder.trace_id", traceID.String()), slog.String("lock.holder.span_id", spanID.String()))
	}
	log.LogAttrs(ctx, slog.LevelDebug, "lockaround: a call did not get its lock", about...)
}
