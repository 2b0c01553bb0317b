package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/scriptname"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Ping reports whether the server answers and permits every command, the keys
// and the channel that the driver needs. What is denied half-way through a
// script would leave the earlier half done. It leaves no trace.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	s.listener.ensure()
	byName := command{script: probe, key: probeKey, args: []any{s.channel}}
	bySource := byName
	bySource.source = true
	calls := s.ask(ctx, s.calls, bySource, byName)
	for _, c := range calls {
		if c.reply.err != nil {
			return missing(fmt.Sprintf("eval and evalsha on keys %s*", KeyPrefix), c.reply.err)
		}
	}
	value := calls[0].reply.value
	failed, ok := value.([]any)
	if !ok {
		return classify(fmt.Errorf("%w probe: %T instead of a list", protocol.ErrMalformed, value))
	}
	var names []string
	var first error
	for i := 0; i+1 < len(failed); i += 2 {
		name, _ := failed[i].(string)
		text, _ := failed[i+1].(string)
		names = append(names, name)
		if first == nil {
			first = classify(serverError(text))
		}
	}
	if first != nil {
		return missing(strings.Join(names, ", ")+fmt.Sprintf(" on keys %s* and channels %s*", KeyPrefix, ChannelPrefix), first)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silence(s.timeout))
	defer cancel()
	if err := s.listener.wait(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return context.Cause(ctx)
		}
		return missing(fmt.Sprintf("subscribe on channels %s*", ChannelPrefix), err)
	}
	return s.confirmed(ctx)
}

// missing adds to a permanent error what the driver needs.
func missing(what string, err error) error {
	p := new(driver.PermanentError)
	if !errors.As(err, &p) {
		return err
	}
	return &driver.PermanentError{Err: fmt.Errorf("the server does not permit what locks need: %s: %w", what, p.Err)}
}

//go:embed probe.lua
var probeSource string

var probe = &protocol.Script{Name: "probe", Source: probeSource, SHA: scriptname.Of(probeSource)}

// probeKey is no lock's key, since those are never empty.
var probeKey = protocol.Key("")
