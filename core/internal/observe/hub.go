package observe

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/queue"
)

// tick is how often the hub looks for changes while somebody watches.
const tick = 200 * time.Millisecond

// Config is what a hub is made with.
type Config struct {
	Queue    *queue.Queue
	Prefix   string // of the engine's keys: what the engines of a namespace have in common
	Identity string // of the process
	Driver   string // its name
}

// Hub is what an engine has for those who watch. It is safe for concurrent use.
type Hub struct {
	Config
	gossip driver.Gossip // nil: engines cannot report to each other

	mu      sync.Mutex
	self    *Origin   // nil: nobody has watched yet
	rec     *recorder // nil: nobody watches
	watches map[*Watch]struct{}
	closed  bool
	sharing sharing
	others  others
	crowded time.Time          // when an engine was left out, since there were too many
	stop    context.CancelFunc // of the run under way

	unasked func() // ends the listening to asks
	running sync.WaitGroup
}

// New returns a hub without watchers. It listens to those who ask for reports.
func New(c Config) *Hub {
	h := &Hub{Config: c, gossip: c.Queue.Gossip(), unasked: func() {}}
	if h.gossip != nil && len(h.reports()) <= maxTopic {
		h.unasked = h.gossip.Listen(h.asks(), driver.Listener{Heard: h.asked, Listening: func() {}})
	} else {
		h.gossip = nil
	}
	return h
}

// maxTopic is how many bytes a topic has at most.
const maxTopic = 512

// asks and reports are the topics of the engines of a namespace.
func (h *Hub) asks() string    { return h.Prefix + "asks" }
func (h *Hub) reports() string { return h.Prefix + "reports" }

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
	h.sharing.seen, h.sharing.named = 0, nil
	h.Queue.Observe(h.rec)
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.running.Go(func() { h.run(ctx) })
}

// rest ends what nobody needs any more. h.mu is held.
func (h *Hub) rest(now time.Time) {
	if h.rec == nil || len(h.watches) > 0 && !h.closed {
		return
	}
	h.others = nil
	if h.sharing.until.After(now) && !h.closed {
		return
	}
	h.Queue.Observe(nil)
	h.rec = nil
	h.stop()
}

// run tells those who watch of changes, and reports to others, until ctx ends.
func (h *Hub) run(ctx context.Context) {
	every := time.NewTicker(tick)
	defer every.Stop()
	stop := func() {}
	defer func() { stop() }()
	listens := false
	for {
		h.mu.Lock()
		if ctx.Err() != nil {
			h.mu.Unlock()
			return
		}
		now := time.Now()
		h.rest(now)
		watched := len(h.watches) > 0
		h.tell(now)
		h.mu.Unlock()

		if h.gossip != nil && watched != listens {
			stop()
			if stop = func() {}; watched {
				stop = h.gossip.Listen(h.reports(), driver.Listener{Heard: h.reported, Listening: h.listening})
			}
			listens = watched
		}
		if h.gossip != nil {
			h.share(ctx, now)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell tells those who watch whether something has changed. h.mu is held.
func (h *Hub) tell(now time.Time) {
	if h.rec == nil {
		return
	}
	if h.others.age(now) {
		h.changed()
	}
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

// Close ends every watch, tells those who watch elsewhere, and waits for the hub's goroutine.
func (h *Hub) Close() {
	h.unasked()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.running.Wait()
		return
	}
	h.closed = true
	for w := range h.watches {
		h.drop(w)
	}
	now := time.Now()
	farewell := h.rec != nil && h.sharing.until.After(now)
	h.rest(now)
	h.mu.Unlock()
	h.running.Wait()
	if farewell {
		ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
		defer cancel()
		_ = h.gossip.Tell(ctx, h.reports(), begin(kindClosed, h.self.Instance).b) // silence says so too, later
	}
}

// farewellTime is how long the end of an engine may take because others are told of it.
const farewellTime = 100 * time.Millisecond

// View returns the newest picture. After the watch has ended it is empty but for the time.
func (w *Watch) View() View {
	h := w.hub
	h.mu.Lock()
	now := time.Now()
	if w.ended {
		h.mu.Unlock()
		return View{At: now, Since: now, Alone: "the watch has ended"}
	}
	w.seen = h.rec.version.Load()
	select {
	case <-w.changed:
	default:
	}
	rec, o, alone := h.rec, maps.Clone(h.others), h.alone(now)
	h.mu.Unlock() // the store's pushes may wait for it
	v := h.view(rec, o, now)
	v.Alone = alone
	return v
}

// view makes a view.
func (h *Hub) view(rec *recorder, o others, now time.Time) View {
	keys, left, held, waiting := h.Queue.Look(MaxKeys, MaxCallers)
	v := View{At: now, Since: rec.since, Policies: rec.busiest(now)}
	self := Process{Identity: rec.self.Identity, Instance: rec.self.Instance.String(), Self: true, Heard: now, Held: held, Waiting: waiting}
	v.Processes = append([]Process{self}, o.processes()...)
	all := make(candidates)
	for i := range keys {
		all.of(keys[i].Key[len(h.Prefix):]).use(usageOf(&keys[i], rec.self))
	}
	o.use(now, func(key string, u usage) { all.of(key).use(u) })
	left += rec.keys.each(now, func(name string, r *record) {
		if busy := r.busy(numberOf(now)); busy > 0 || all[name] != nil {
			all.of(name).busy = busy
		}
	})
	for _, c := range all.best(MaxKeys) {
		v.Keys = append(v.Keys, rec.key(c, now))
	}
	v.Dropped = left + len(all) - len(v.Keys)
	for _, p := range o {
		v.Dropped += p.dropped
	}
	return v
}

// Key returns what is known of one key.
func (w *Watch) Key(name string) Key {
	h := w.hub
	h.mu.Lock()
	rec, o, ended := h.rec, maps.Clone(h.others), w.ended
	h.mu.Unlock()
	if ended {
		return Key{Key: name}
	}
	now := time.Now()
	own := h.Queue.LookAt(h.Prefix+name, MaxCallers)
	c := candidate{name: name}
	c.use(usageOf(&own, rec.self))
	for _, p := range o {
		c.use(p.at(name, now))
	}
	return rec.key(&c, now)
}

// alone says why other processes, or some of them, are not shown. h.mu is held.
func (h *Hub) alone(now time.Time) string {
	switch {
	case h.gossip == nil && h.Queue.Gossip() != nil:
		return "the namespace is too long for processes to report to each other, so that only this one is shown"
	case h.gossip == nil:
		return "driver " + h.Driver + " has no way for processes to report to each other, so that only this one is shown"
	case h.sharing.silent:
		return "the store did not take the latest message, so that other processes may be missing or shown as they were"
	case now.Sub(h.crowded) < goneAfter:
		return "more processes report than are shown: " + strconv.Itoa(MaxProcesses) + " of them are"
	}
	return ""
}
