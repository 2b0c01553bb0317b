package decorator

import (
	"context"

	"github.com/lockaround/lockaround/core"
)

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
