package observe

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/internal/queue"
)

// tick is how often the hub looks for changes while somebody watches.
const tick = 200 * time.Millisecond

// Config is what a hub is made with.
type Config struct {
	Queue    *queue.Queue
	Prefix   string // of the engine's keys
	Identity string // of the process
	Driver   string // its name
}

// Hub is what an engine has for those who watch. It is safe for concurrent use.
type Hub struct {
	Config

	mu      sync.Mutex
	self    *Origin
	rec     *recorder // nil: nobody watches
	watches map[*Watch]struct{}
	closed  bool
	stop    context.CancelFunc // of the run under way
	running sync.WaitGroup
}

// New returns a hub of which nobody watches anything.
func New(c Config) *Hub { return &Hub{Config: c} }

// Watch is one who watches.
type Watch struct {
	hub     *Hub
	changed chan struct{}
	seen    uint64 // version of the last view; guarded by the hub's mutex
	ended   bool   // likewise
}

// Watch begins to watch, until ctx ends. It returns nil if the hub is closed.
func (h *Hub) Watch(ctx context.Context) *Watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	w := &Watch{hub: h, changed: make(chan struct{}, 1)}
	w.changed <- struct{}{}
	if h.watches == nil {
		h.watches = make(map[*Watch]struct{})
	}
	h.watches[w] = struct{}{}
	h.begin()
	context.AfterFunc(ctx, w.end)
	return w
}

// Changed is sent to after a change since the last view, and closed when the watch has ended.
func (w *Watch) Changed() <-chan struct{} { return w.changed }

func (w *Watch) end() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.hub.drop(w)
	w.hub.rest(time.Now())
}

// drop ends a watch. h.mu is held.
func (h *Hub) drop(w *Watch) {
	if !w.ended {
		w.ended = true
		close(w.changed)
		delete(h.watches, w)
	}
}

// begin starts to record, unless the hub does. h.mu is held.
func (h *Hub) begin() {
	if h.rec != nil {
		return
	}
	if h.self == nil {
		h.self = &Origin{Identity: h.Identity}
		_, _ = rand.Read(h.self.Instance[:]) // never fails: crypto/rand aborts the program instead
	}
	h.rec = newRecorder(h.self, len(h.Prefix))
	h.Queue.Observe(h.rec)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.running.Go(func() { h.run(ctx) })
}

// rest ends the recording if nobody watches. h.mu is held.
func (h *Hub) rest(time.Time) {
	if h.rec == nil || len(h.watches) > 0 {
		return
	}
	h.Queue.Observe(nil)
	h.rec = nil
	h.stop()
}

// run tells those who watch of changes, until ctx ends.
func (h *Hub) run(ctx context.Context) {
	every := time.NewTicker(tick)
	defer every.Stop()
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		if ctx.Err() == nil {
			h.tell()
		}
		h.mu.Unlock()
	}
}

// tell tells those who watch whether something has changed. h.mu is held.
func (h *Hub) tell() {
	version := h.rec.version.Load()
	for w := range h.watches {
		if w.seen != version {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

// Close ends every watch, and waits for the hub's goroutine.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for w := range h.watches {
		h.drop(w)
	}
	h.rest(time.Now())
	h.mu.Unlock()
	h.running.Wait()
}

// View returns the newest picture. After the watch has ended it is empty but for the time.
func (w *Watch) View() View {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if w.ended {
		return View{At: now, Since: now, Alone: "the watch has ended"}
	}
	w.seen = h.rec.version.Load()
	select {
	case <-w.changed:
	default:
	}
	return h.view(now)
}

// view makes a view. h.mu is held.
func (h *Hub) view(now time.Time) View {
	keys, left, held, waiting := h.Queue.Look(MaxKeys, MaxCallers)
	v := View{At: now, Since: h.rec.since, Alone: h.alone(), Policies: h.rec.busiest(now)}
	v.Processes = append(v.Processes, Process{
		Identity: h.self.Identity, Instance: h.self.Instance.String(), Self: true, Heard: now, Held: held, Waiting: waiting,
	})
	all := make(candidates)
	for i := range keys {
		all.of(keys[i].Key[len(h.Prefix):]).use(usageOf(&keys[i], h.self))
	}
	left += h.rec.keys.each(now, func(name string, r *record) {
		if busy := r.busy(numberOf(now)); busy > 0 || all[name] != nil {
			all.of(name).busy = busy
		}
	})
	for _, c := range all.best(MaxKeys) {
		v.Keys = append(v.Keys, h.rec.key(c, now))
	}
	v.Dropped = left + len(all) - len(v.Keys)
	return v
}

// Key returns what is known of one key.
func (w *Watch) Key(name string) Key {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.ended {
		return Key{Key: name}
	}
	own := h.Queue.LookAt(h.Prefix+name, MaxCallers)
	c := candidate{name: name}
	c.use(usageOf(&own, h.self))
	return h.rec.key(&c, time.Now())
}

// alone says why other processes are not shown.
func (h *Hub) alone() string {
	return "driver " + h.Driver + " has no way for processes to report to each other, so that only this one is shown"
}
