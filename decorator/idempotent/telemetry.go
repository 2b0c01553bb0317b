package idempotent

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
)

// outcome is how a call ended.
type outcome uint8

const (
	ran        outcome = iota // and its answer is stored
	unkept                    // it ran, and is not done
	unstored                  // it ran, and its answer is not stored
	panicked                  // also if the function ended its goroutine
	replayed                  // with the answer of an earlier run
	concurrent                // with one that has not ended
	mismatch                  // an ErrMismatch, and so on
	unknown
	noReplay
	unavailable
	lost    // the lock, before its answer was stored
	refused // before it was looked for: a bad key, a cancelled context, a closed engine
)

var outcomes = [...]string{"ran", "unkept", "unstored", "panicked", "replayed", "concurrent", "mismatch", "unknown", "no_replay", "unavailable", "lost", "refused"}

// signals are the metrics of one guard.
type signals struct {
	calls metric.Int64Counter
	call  [len(outcomes)][]metric.AddOption
}

func newSignals(e *core.Engine, name string) (*signals, error) {
	m := instruments.NewMeter(e.MeterProvider())
	s := &signals{calls: m.Counter(instruments.IdempotentCalls)}
	for o, text := range outcomes {
		s.call[o] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(instruments.NameKey.String(name), instruments.OutcomeKey.String(text)))}
	}
	return s, m.Err()
}

func (s *signals) ended(ctx context.Context, o outcome) { s.calls.Add(ctx, 1, s.call[o]...) }

// outcomeOf is how a call has ended that did not run, or failed.
func outcomeOf(replay []byte, err error) outcome {
	if err == nil && replay != nil {
		return replayed
	}
	for _, known := range []struct {
		kind error
		outcome
	}{
		{ErrMismatch, mismatch},
		{ErrUnknown, unknown},
		{ErrNoReplay, noReplay},
		{ErrUnavailable, unavailable},
		{core.ErrBusy, concurrent},
		{core.ErrFull, concurrent},
		{core.ErrTimeout, concurrent},
		{core.ErrLost, lost},
		{core.ErrMaxHold, lost},
	} {
		if errors.Is(err, known.kind) {
			return known.outcome
		}
	}
	return refused
}
