package lockpage

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/watch"
)

// scene is a watch whose view a test sets.
type scene struct {
	mu      sync.Mutex
	view    watch.View
	changed chan struct{}
	details map[string]watch.Key
	ctx     context.Context
	begun   int // watches, so far
}

func (s *scene) watch(ctx context.Context) (watcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	s.begun++
	s.changed = make(chan struct{}, 1)
	return s, nil
}

func (s *scene) View() watch.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	v.Keys = slices.Clone(v.Keys) // a view is its caller's own
	for i := range v.Keys {
		v.Keys[i].Holders = slices.Clone(v.Keys[i].Holders)
	}
	if v.At.IsZero() {
		v.At = time.Now()
	}
	return v
}

func (s *scene) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *scene) set(v watch.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = v
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *scene) Key(_ context.Context, key string) (watch.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.details[key]; ok {
		return k, nil
	}
	for _, k := range s.view.Keys {
		if k.Key == key {
			k.Holders = slices.Clone(k.Holders)
			return k, nil
		}
	}
	return watch.Key{Key: key}, nil
}

// watching reports whether the latest watch goes on.
func (s *scene) watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx != nil && s.ctx.Err() == nil
}

// set up returns a page of an engine in memory that shows the scene.
func (s *scene) page(t testing.TB, opts ...Option) *page {
	t.Helper()
	return s.pageOf(t, engine(t), opts...)
}

func (s *scene) pageOf(t testing.TB, locks *core.Engine, opts ...Option) *page {
	t.Helper()
	h, err := New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	p := h.(*page)
	p.hub.watch, p.hub.linger, p.hub.first = s.watch, 0, 0
	t.Cleanup(func() {
		p.hub.mu.Lock()
		last := p.hub.present
		p.hub.mu.Unlock()
		if last != nil {
			last.stop()
			<-last.over
		}
	})
	return p
}

func engine(t testing.TB, opts ...core.Option) *core.Engine {
	t.Helper()
	return engineOn(t, memlock.New(), opts...)
}

func engineOn(t testing.TB, store driver.Driver, opts ...core.Option) *core.Engine {
	t.Helper()
	e, err := core.New(store, append([]core.Option{core.WithNamespace("test")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}
