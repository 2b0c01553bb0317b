package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// race changes the source and invalidates the value while a load of the old one is under
// way.
func race(ctx context.Context, t *trial) (Outcome, error) {
	crew, err := recruit(ctx, t, 1, Settings{Expiry: time.Minute})
	if err != nil {
		return Outcome{}, err
	}
	defer crew.Close()
	answers, err := crew.Ask(Command{Race: &Race{Keys: keysOf(t, t.Pace.Tries)}})
	if err != nil {
		return Outcome{}, err
	}
	a := answers[0]
	return outcome(a.Gets, map[string]float64{"stored": float64(a.Stored), "kept": float64(a.Kept)}), nil
}

var raceMetrics = []Metric{
	{Name: "stored", Title: "times that a third process still gets the old value", Unit: measure.Each},
	{Name: "kept", Title: "times that any process does", Unit: measure.Each},
}

// Race is a try for each key. The worker has three processes of the peer, each with its
// own client and its own copies: the one that loads, the one that invalidates, and
// one that asks afterwards.
type Race struct {
	Keys []string `json:"keys"`
}

func (r *Race) do(ctx context.Context, w *worker) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var all [3]Process
	for i := range all {
		source := w.source // whose loads are stopped
		if i > 0 {
			source = newSource(w.settings.Addr)
			defer source.close()
		}
		var err error
		if all[i], err = w.peer.Open(w.settings, source.load); err != nil {
			return Answer{}, fmt.Errorf("open: %w", err)
		}
		defer all[i].Close()
	}
	w.source.takes.Store(0)
	var stored, kept atomic.Int64
	var tries sync.WaitGroup
	errs := make([]error, len(r.Keys))
	for i, key := range r.Keys {
		tries.Go(func() {
			old, err := race1(ctx, w.source, all, key, i%2 == 0)
			errs[i] = err
			if old[2] {
				stored.Add(1)
			}
			if old[0] || old[1] || old[2] {
				kept.Add(1)
			}
		})
	}
	tries.Wait()
	if err := errors.Join(errs...); err != nil {
		return Answer{}, err
	}
	return Answer{Gets: newGets(), Stored: stored.Load(), Kept: kept.Load()}, nil
}

const (
	// apart is how long after the invalidation the load of the old value ends.
	apart = 100 * time.Millisecond
	// settling is how long a peer that returns an old value at first has for getting
	// the new one in the background.
	settling = 300 * time.Millisecond
)

// race1 is one try. It says which of the processes has an outdated value in the end.
// If another one is to ask at once, it does so between the invalidation and the end of
// the load.
func race1(ctx context.Context, source *source, all [3]Process, key string, atOnce bool) (old [3]bool, err error) {
	if err := change(ctx, source.client, 1, key); err != nil {
		return old, err
	}
	load := source.stop(key)
	loading, asking := make(chan error, 1), make(chan error, 1)
	go func() { loading <- get(ctx, all[0], key) }()
	select {
	case <-load.begun:
	case err := <-loading:
		return old, errors.Join(errors.New("a Get of a new key ended without a load"), err)
	}
	if err := change(ctx, source.client, 2, key); err != nil {
		return old, err
	}
	if err := all[1].Invalidate(ctx, key); err != nil {
		return old, fmt.Errorf("invalidate: %w", err)
	}
	if atOnce {
		go func() { asking <- get(ctx, all[1], key) }()
	} else {
		asking <- nil
	}
	if err := contest.Sleep(ctx, apart); err != nil {
		return old, err
	}
	close(load.end)
	if err := errors.Join(<-loading, <-asking); err != nil {
		return old, err
	}
	for range 2 {
		if err := contest.Sleep(ctx, settling); err != nil {
			return old, err
		}
		for i, p := range all {
			item, err := p.Get(ctx, key)
			if err != nil {
				return old, err
			}
			old[i] = item.Version < 2
		}
	}
	return old, nil
}

func get(ctx context.Context, p Process, key string) error {
	_, err := p.Get(ctx, key)
	return err
}
