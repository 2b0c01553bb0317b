package lockpage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
)

// panels asks those who have a panel, and keeps what each said last.
type panels struct {
	of   []core.Paneler
	news chan struct{} // has a value when something was said that is new

	mu   sync.Mutex
	said []core.Panel
	busy []bool
}

func newPanels(of []core.Paneler) *panels {
	return &panels{of: of, news: make(chan struct{}, 1), said: make([]core.Panel, len(of)), busy: make([]bool, len(of))}
}

// ask asks all of them that are not being asked, and returns when they have answered.
func (p *panels) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, panelsWithin)
	defer cancel()
	var asked sync.WaitGroup
	for i := range p.of {
		p.mu.Lock()
		busy := p.busy[i]
		p.busy[i] = true
		p.mu.Unlock()
		if !busy {
			asked.Go(func() {
				a := core.Panel{Err: errPanelPanicked}
				defer func() { p.note(i, a) }() // also if it ends the goroutine
				a = answer(ctx, p.of[i])
			})
		}
	}
	asked.Wait()
	if ctx.Err() == nil && len(p.of) > 0 {
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

var errPanelPanicked = errors.New("its method Panel panicked or ended its goroutine, or its error did")

// answer is what one says. Its panic is no reason for the service to end, nor is that of its error.
func answer(ctx context.Context, p core.Paneler) (a core.Panel) {
	defer func() {
		if recover() != nil {
			a.Err = errPanelPanicked
		}
	}()
	if a = p.Panel(ctx); a.Err != nil {
		a.Err = errors.New(a.Err.Error())
	}
	return a
}

func (p *panels) note(i int, a core.Panel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said[i], p.busy[i] = a, false
}

func (p *panels) read() []core.Panel {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.said)
}

// panelView is a panel on the page.
type panelView struct {
	ID, Title string
	Columns   []string
	Rows      [][]any // of string and *moment
	Fault     string
}

// The largest panel that is shown.
const (
	panelColumns = 12
	panelRows    = 50
)

func (b *builder) panels(all []core.Panel) []panelView {
	out := make([]panelView, 0, len(all))
	for i, p := range all {
		if p.Title == "" && p.Err == nil && len(p.Rows) == 0 {
			continue // it has not answered yet
		}
		v := panelView{ID: fmt.Sprintf("panel-%d", i), Title: printable(p.Title)}
		if v.Title == "" {
			v.Title = fmt.Sprintf("panel %d", i+1)
		}
		if p.Err != nil {
			v.Fault = printable(p.Err.Error())
		}
		for _, c := range p.Columns[:min(len(p.Columns), panelColumns)] {
			v.Columns = append(v.Columns, printable(c))
		}
		for _, row := range p.Rows[:min(len(p.Rows), panelRows)] {
			cells := make([]any, len(v.Columns))
			for n := range cells {
				cells[n] = ""
				if n < len(row) {
					cells[n] = b.cell(row[n])
				}
			}
			v.Rows = append(v.Rows, cells)
		}
		out = append(out, v)
	}
	return out
}

func (b *builder) cell(v any) any {
	if t, ok := v.(time.Time); ok {
		switch {
		case t.IsZero():
			return ""
		case t.After(b.now):
			return b.left(t)
		}
		return b.since(t)
	}
	return cell(v)
}
