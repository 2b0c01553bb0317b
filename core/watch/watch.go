package watch

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/observe"
)

// Watcher sees what the engines of a namespace do at the moment. It is safe for concurrent use.
type Watcher struct {
	all     *watchers
	engine  *core.Engine
	changed chan struct{}
	seen    uint64 // version of the last view; guarded by the hub's mutex
	ended   bool   // likewise
}

// New begins to watch what an engine does, and every engine of its namespace that can be reached.
//
// What is under way is shown at once; counts, waits and events are from here on. The watch ends
// with ctx, or with the engine. While nobody watches, nothing is recorded and nothing is sent.
// Views have the keys as they are: decide who may see them. They have no owners. What other
// processes do is what they tell through the store: whoever may write there can make it up. Keys
// that are alike come in an order that tells nothing of their names.
//
// The error is a [*core.Error] around core.ErrPolicy if the engine or ctx is nil, core.ErrClosed if
// the engine is closed, or ctx's error.
func New(ctx context.Context, e *core.Engine) (*Watcher, error) {
	h, err := observe.Of(ctx, e)
	if err != nil {
		return nil, err
	}
	h.Lock()
	defer h.Unlock()
	if h.Closed {
		return nil, &core.Error{Op: "watch", Driver: h.Manager.Capabilities.Name, Kind: core.ErrClosed}
	}
	all := h.Viewer(func() observe.Viewer { return &watchers{hub: h, watching: make(map[*Watcher]struct{})} }).(*watchers)
	w := &Watcher{all: all, engine: e, changed: make(chan struct{}, 1)}
	w.changed <- struct{}{}
	all.watching[w] = struct{}{}
	h.Begin()
	context.AfterFunc(ctx, w.end)
	return w, nil
}

// Changed returns a channel that is sent to when something has changed since the last View, a few
// times a second at most. There is one channel, for one receiver; it is closed when the watch has
// ended. The first View is due at once.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

func (w *Watcher) end() {
	w.all.hub.Lock()
	defer w.all.hub.Unlock()
	w.all.drop(w)
	w.all.hub.Rest(time.Now())
}

// View returns the newest picture. After the watch has ended it is empty, and Alone says so.
func (w *Watcher) View() View {
	h := w.all.hub
	h.Lock()
	now := time.Now()
	if w.ended {
		h.Unlock()
		return View{At: now, Since: now, Window: observe.Window, Alone: "the watch has ended"}
	}
	w.seen = h.Rec.Version.Load()
	select {
	case <-w.changed:
	default:
	}
	rec, o, alone := h.Rec, maps.Clone(w.all.others), w.all.alone(now)
	h.Unlock() // the store's pushes may wait for it
	v := viewOf(h, rec, o, now)
	v.Alone = alone
	return v
}

// viewOf makes a view.
func viewOf(h *observe.Hub, rec *observe.Recorder, o others, now time.Time) View {
	keys, left, held, waiting := h.Manager.Look(MaxKeys, MaxCallers)
	v := View{At: now, Since: rec.Since, Window: observe.Window, Store: storeOf(h), Policies: policiesOf(h, rec, o, now)}
	self := Process{
		Identity: rec.Self.Identity, Instance: rec.Self.Instance.String(), Self: true, Heard: now,
		Started: observe.Started, Version: observe.Version(), Held: held, Waiting: waiting,
	}
	v.Processes = append([]Process{self}, o.processes()...)
	all := make(observe.Ranking[usages])
	for i := range keys {
		rank(all, keys[i].Key[len(h.Prefix):], usageOf(&keys[i], rec.Self))
	}
	o.use(now, func(name string, u usage) { rank(all, name, u) })
	left += rec.Keys.Each(now, func(name string, r *observe.Record) {
		if busy := r.Happened(observe.NumberOf(now)); busy > 0 || all[name] != nil {
			all.Of(name).Busy = busy
		}
	})
	for _, c := range all.Best(MaxKeys) {
		v.Keys = append(v.Keys, keyOf(rec, c.Name, c.Used, now))
	}
	v.Dropped = left + len(all) - len(v.Keys)
	for _, p := range o {
		v.Dropped += p.shown.Dropped
	}
	return v
}

func storeOf(h *observe.Hub) Store {
	t, caps := h.Manager.Trouble(), &h.Manager.Capabilities
	return Store{Driver: caps.Name, Address: caps.Address, Namespace: strings.TrimSuffix(h.Prefix, "/"), Failing: t.Since, Refuses: t.Refuses, Fault: t.Fault}
}

// Key returns what is known of one literal key, which need not be in the View, with what the store
// says of it, as [core.Engine.Inspect] does. The errors are those of Inspect, and the Key has what
// the processes know all the same, unless the key is none.
func (w *Watcher) Key(ctx context.Context, key string) (Key, error) {
	st, err := w.engine.Inspect(ctx, key)
	if errors.Is(err, core.ErrKey) {
		return Key{}, err
	}
	k := w.known(key)
	if err == nil {
		k.Store = &st
	}
	return k, err
}

// known is what the processes know of a key.
func (w *Watcher) known(name string) Key {
	h := w.all.hub
	h.Lock()
	rec, o, ended := h.Rec, maps.Clone(w.all.others), w.ended
	h.Unlock()
	if ended {
		return Key{Key: name}
	}
	now := time.Now()
	own := h.Manager.LookAt(h.Prefix+name, MaxCallers)
	used := usages{usageOf(&own, rec.Self)}
	for _, p := range o {
		used = append(used, p.at(name, now))
	}
	return keyOf(rec, name, used, now)
}

// watchers are those who watch an engine in its own process: the hub's viewer. They are guarded by
// the hub's mutex.
type watchers struct {
	hub      *observe.Hub
	watching map[*Watcher]struct{}
	others   others
	crowded  time.Time // when an engine was left out, since there were too many
}

func (all *watchers) Watched() bool { return len(all.watching) > 0 }

func (all *watchers) Rest() { all.others = nil }

func (all *watchers) Tell(now time.Time) {
	if all.others.age(now) {
		all.note()
	}
	version := all.hub.Rec.Version.Load()
	for w := range all.watching {
		if w.seen != version {
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}
}

func (all *watchers) Close() {
	for w := range all.watching {
		all.drop(w)
	}
}

// drop ends a watch.
func (all *watchers) drop(w *Watcher) {
	if !w.ended {
		w.ended = true
		close(w.changed)
		delete(all.watching, w)
	}
}

// note notes a change.
func (all *watchers) note() {
	if all.hub.Rec != nil {
		all.hub.Rec.Version.Add(1)
	}
}

// alone says why other processes, or some of them, are not shown.
func (all *watchers) alone(now time.Time) string {
	switch h := all.hub; {
	case h.Gossip == nil && h.Manager.Gossip() != nil:
		return "the namespace is too long for processes to report to each other, so that only this one is shown"
	case h.Gossip == nil:
		return "driver " + h.Manager.Capabilities.Name + " has no way for processes to report to each other, so that only this one is shown"
	case h.Silent:
		return "the store did not take the latest message, so that other processes may be missing or shown as they were"
	case now.Sub(all.crowded) < goneAfter:
		return "more processes report than are shown: " + strconv.Itoa(MaxProcesses) + " of them are"
	}
	return ""
}
