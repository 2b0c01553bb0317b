package decorator

import (
	"context"

	"github.com/lockaround/lockaround/core"
)

// parkedShown is how many parked keys a panel has a row for.
const parkedShown = 20

// Panel says how many items the queue has and which of them wait for an operator, over all
// processes, for a page that an operator looks at. It asks the store, and has neither keys nor
// payloads: the ID is for [SerialFunc.Resume].
func (f *SerialFunc[In]) Panel(ctx context.Context) core.Panel {
	p := core.Panel{Title: "serial " + f.guard.Name(), Columns: []string{"items", "oldest", "parked keys", "works here", "dead item", "parked since", "items behind it"}}
	stats, err := f.queue.Stats(ctx)
	if err != nil {
		p.Err = f.unanswered(ctx, "panel", err)
		return p
	}
	f.mu.Lock()
	working := f.working
	f.mu.Unlock()
	row := []any{stats.Length, stats.Oldest, stats.Parked, working}
	if stats.Parked == 0 {
		p.Columns, p.Rows = p.Columns[:len(row)], [][]any{row}
		return p
	}
	all, err := f.Parked(ctx, parkedShown)
	if err != nil {
		p.Err = err
		return p
	}
	for _, k := range all {
		p.Rows = append(p.Rows, append(row, k.ID, k.Since, k.Left-1))
		row = []any{nil, nil, nil, nil}
	}
	if len(all) == 0 { // they were resumed meanwhile
		p.Rows = [][]any{row}
	}
	return p
}

// Panel says how many loads this process has under way and how those before have ended, for a page
// that an operator looks at. It asks no store.
func (f *CachedFunc[In, Out]) Panel(context.Context) core.Panel {
	f.mu.Lock()
	under := 0
	for _, fl := range f.flights {
		if !fl.over {
			under++
		}
	}
	paused := len(f.paused)
	f.mu.Unlock()
	p := core.Panel{Title: "cache " + f.guard.Name(), Columns: []string{"loads under way", "keys whose refresh has just failed"}}
	row := []any{under, paused}
	for o := range f.signals.ended {
		p.Columns, row = append(p.Columns, loadOutcomes[o]), append(row, f.signals.ended[o].Load())
	}
	p.Rows = [][]any{row}
	return p
}
