package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// killed kills a process that loads, and has another one ask for the value in that moment.
func killed(ctx context.Context, t *trial) (Outcome, error) {
	crew, err := recruit(ctx, t, 2, Settings{Expiry: time.Minute, LockTTL: t.Pace.LockTTL})
	if err != nil {
		return Outcome{}, err
	}
	defer crew.Close()
	if _, err := crew.Ask(Command{Fill: &Fill{Keys: keysOf(t, 1)}}); err != nil { // connections and scripts
		return Outcome{}, err
	}
	key, victim, other := keysOf(t, 2)[1], crew[0], crew[1]
	if err := victim.Tell(Command{Wave: &Wave{Key: key, At: time.Now().UnixNano(), Callers: 1, Takes: time.Hour}}); err != nil {
		return Outcome{}, err
	}
	for loads := int64(0); loads == 0; {
		if err := contest.Sleep(ctx, time.Millisecond); err != nil {
			return Outcome{}, fmt.Errorf("wait for the load: %w", err)
		}
		if loads, err = countLoads(ctx, t.Client, key); err != nil {
			return Outcome{}, err
		}
	}
	if err := contest.Sleep(ctx, t.Pace.Before); err != nil {
		return Outcome{}, err
	}
	at := time.Now()
	victim.Kill()
	a, err := other.Ask(Command{Wave: &Wave{Key: key, At: at.UnixNano(), Callers: 1, Takes: t.Pace.Takes}})
	if err != nil {
		return Outcome{}, err
	}
	return outcome(a.Gets, map[string]float64{"until": milliseconds(a.Gets.Waits.Worst())}), nil
}

var killedMetrics = []Metric{{Name: "until", Title: "until another process has the value", Unit: measure.Milliseconds}}
