package lockpage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/watch"
)

// watcher is one watch over a namespace.
type watcher interface {
	View() watch.View
	Changed() <-chan struct{}
	Key(ctx context.Context, key string) (watch.Key, error)
}

const (
	// pace is the least time between two pictures: what happens meanwhile is in the next one.
	pace = 250 * time.Millisecond
	// linger is for how long a watch outlives the last request, so that a page that is
	// reloaded has the minutes before.
	linger = 15 * time.Second
	// panelsEvery is how often panels are asked, and panelsWithin how long they may take.
	panelsEvery  = 2 * time.Second
	panelsWithin = 2 * time.Second
	// firstPicture is how long the first page waits for what other processes tell.
	firstPicture = 700 * time.Millisecond
	// mostKnown is how many keys are known by their codes before those of earlier pictures are
	// forgotten.
	mostKnown = 10_000
)

// picture is what is shown at a moment to everybody who looks.
type picture struct {
	view   watch.View
	panels []core.Panel
	next   chan struct{} // closed when there is a later one

	once sync.Once
	live *drawing // the overview of browsers that are kept up to date, drawn when the first asks
}

// hub watches while somebody looks.
type hub struct {
	watch  func(context.Context) (watcher, error)
	ping   func(context.Context) error // asks the store whether it answers, which the view then says
	code   func(string) string
	panels []core.Paneler
	linger time.Duration
	first  time.Duration

	mu      sync.Mutex
	lookers int
	present *session
}

// session is a watch from the first who looks to some time after the last.
type session struct {
	stop    context.CancelFunc
	over    chan struct{} // closed when it has ended
	settled time.Time     // until when the first page waits for what other processes tell
	watcher watcher
	idle    *time.Timer // ends it; nil while somebody looks

	mu     sync.Mutex
	latest *picture
	known  map[string]string // keys by their codes, also of earlier pictures
	asked  map[string]*asked // by keys: what the store was asked lately
}

// look returns the present watch, and keeps it until leave is called. Its error is that nothing can be
// watched.
func (h *hub) look(ctx context.Context) (s *session, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s = h.present; s != nil {
		select {
		case <-s.over: // the engine was closed, say
			s = nil
		default:
		}
	}
	if s == nil {
		if s, err = h.open(ctx); err != nil {
			return nil, nil, err
		}
		h.present = s
	}
	h.lookers++
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
	return s, sync.OnceFunc(h.leave), nil
}

// leave lets the watch end some time after the last has left.
func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lookers--; h.lookers > 0 {
		return
	}
	s := h.present
	s.idle = time.AfterFunc(h.linger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.lookers == 0 && h.present == s {
			h.present = nil
			s.stop()
		}
	})
}

func (h *hub) open(ctx context.Context) (*session, error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w, err := h.watch(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	s := &session{stop: stop, over: make(chan struct{}), watcher: w, settled: time.Now().Add(h.first)}
	s.latest = &picture{next: make(chan struct{})}
	h.take(s, nil)
	go h.run(ctx, s)
	return s, nil
}

// run takes pictures until the watch ends.
func (h *hub) run(ctx context.Context, s *session) {
	panels := newPanels(h.panels)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer s.stop()
	defer close(s.over) // first: a panel may not return
	ask := time.NewTicker(panelsEvery)
	defer ask.Stop()
	var pinging atomic.Bool
	lookAround := func() {
		asking.Go(func() { panels.ask(ctx) })
		if pinging.CompareAndSwap(false, true) {
			asking.Go(func() {
				defer pinging.Store(false)
				_ = h.ping(ctx)
			})
		}
	}
	lookAround()
	for {
		h.take(s, panels.read())
		select {
		case <-ctx.Done():
			return
		case _, goesOn := <-s.watcher.Changed():
			if !goesOn {
				return
			}
		case <-panels.news:
		case <-ask.C: // and whether a wait has become long
			lookAround()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

func (h *hub) take(s *session, panels []core.Panel) {
	p := &picture{view: s.watcher.View(), panels: panels, next: make(chan struct{})}
	known := make(map[string]string, len(p.view.Keys))
	for i := range p.view.Keys {
		settle(&p.view.Keys[i])
		k := p.view.Keys[i].Key
		known[h.code(k)] = k
	}
	s.mu.Lock()
	before := s.latest
	s.latest = p
	if len(s.known) > mostKnown {
		s.known = nil
	}
	if s.known == nil {
		s.known = known
	} else {
		maps.Copy(s.known, known)
	}
	s.mu.Unlock()
	close(before.next)
}

// picture returns the latest picture.
func (s *session) picture() *picture {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// named returns the key of a code, if it was seen in this watch.
func (s *session) named(ctx context.Context, code string) (key string, ok bool) {
	s.first(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	key, ok = s.known[code]
	return key, ok
}

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
