package zklock

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// keyWatches are a session's watches of the nodes of keys. A request that finds its key taken,
// or deletes the lease of another, writes to the key's own node, and the holders watch that
// node. So a holder is woken by such a request only, not by every place that comes and goes.
//
// A lease is watched a little after its grant, so that one that ends at once costs no watch. The
// watch stays when the lease ends, for the session's next lease of the key, unless that is asked
// for by a write to the key's node. The servers remove a watch with the key's node.
type keyWatches struct {
	s    *session
	mu   sync.Mutex
	keys map[string]*keyWatch // by the path of the key's node
}

// keyWatch is the watch of one key.
type keyWatch struct {
	leases           map[*lease]news
	version          int32       // of the key's node, when it was last watched
	watching         bool        // a watch is set, or is being set
	running          bool        // a goroutine executes run
	changedMeanwhile bool        // an event came while running
	timer            *time.Timer // starts run; nil if not set
}

// news is what a lease's holder knows.
type news struct {
	version   int32 // of the key's node when the line was last read, or unread
	contended bool
}

// unread stands for the version of the key's node if the line was not read since somebody left it. The
// holder believes that the key is contended until it is read.
const unread = -2

func (w *keyWatches) init(s *session) {
	w.s = s
	w.keys = make(map[string]*keyWatch)
}

const (
	// watchAfter is how long a lease is not watched after its grant.
	watchAfter = 5 * time.Millisecond

	// watchAgain is how long a key is not watched after an event if all its holders knew that it
	// is contended. They might only learn that they have lost it.
	watchAgain = 100 * time.Millisecond
)

// add watches the key of a lease a little later, of which the holder knows n.
func (w *keyWatches) add(l *lease, n news) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[l.parent]
	if k == nil {
		k = &keyWatch{leases: make(map[*lease]news)}
		w.keys[l.parent] = k
	}
	k.leases[l] = n
	if k.running {
		k.changedMeanwhile = true
	} else if k.mustRead() {
		w.startLater(l.parent, k, watchAfter)
	}
}

// mustRead reports whether there is a lease that would not be told of all that comes.
func (k *keyWatch) mustRead() bool {
	for _, n := range k.leases {
		if !k.watching || n.version != k.version {
			return true
		}
	}
	return false
}

// startLater starts to watch the key's node after a while if that is still needed. w.mu is held.
func (w *keyWatches) startLater(path string, k *keyWatch, after time.Duration) {
	if k.timer != nil {
		return
	}
	k.timer = time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		k.timer = nil
		if w.keys[path] == k && !k.running && k.mustRead() {
			w.start(path, k)
		}
	})
}

// remove removes a lease.
func (w *keyWatches) remove(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[l.parent]; k != nil {
		delete(k.leases, l)
		if k.timer != nil && len(k.leases) == 0 {
			k.timer.Stop()
			k.timer = nil
		}
		w.removeIfIdle(l.parent, k)
	}
}

// removeIfIdle removes a key without leases and without a watch. w.mu is held.
func (w *keyWatches) removeIfIdle(path string, k *keyWatch) {
	if len(k.leases) == 0 && !k.watching && !k.running {
		delete(w.keys, path)
	}
}

// clear removes all watches: ZooKeeper's session has expired.
func (w *keyWatches) clear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.keys)
}

// nodeChanged handles an event of a key's node.
func (w *keyWatches) nodeChanged(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[path]
	switch {
	case k == nil || !k.watching:
	case k.running:
		k.changedMeanwhile = true
	default:
		k.watching = false
		ignorant := false
		for _, n := range k.leases {
			ignorant = ignorant || !n.contended
		}
		switch {
		case ignorant:
			w.start(path, k)
		case len(k.leases) > 0:
			w.startLater(path, k, watchAgain)
		}
		w.removeIfIdle(path, k)
	}
}

// start starts to watch the key's node. w.mu is held.
func (w *keyWatches) start(path string, k *keyWatch) {
	k.watching, k.running, k.changedMeanwhile = true, true, false
	if !w.s.Start(func() { w.run(path, k) }) {
		k.watching, k.running = false, false
	}
}

// run sets the watch on the key's node, and again as long as the node has changed meanwhile.
func (w *keyWatches) run(path string, k *keyWatch) {
	c := w.s.ownCaller()
	for pause := firstPause; ; {
		n, err := w.s.getW(c, path)
		version := int32(-1)
		if err == nil {
			version = n.stat.Version
		}
		if err == nil || err == zk.ErrNoNode {
			err = w.tellLeases(c, path, k, version)
		}
		w.mu.Lock()
		k.version = version
		if w.keys[path] != k { // ZooKeeper's session has expired
			w.mu.Unlock()
			return
		}
		if again := err != nil || k.changedMeanwhile; !again || len(k.leases) == 0 || c.ctx.Err() != nil {
			k.running, k.watching = false, !again && version >= 0
			w.removeIfIdle(path, k)
			w.mu.Unlock()
			return
		}
		k.changedMeanwhile = false
		w.mu.Unlock()
		if err != nil && kit.Sleep(c.ctx, pause) {
			pause = min(2*pause, maxPause)
		}
	}
}

// tellLeases tells the sink of each lease that does not know this version yet: it is lost if
// it is no longer in the line, and otherwise contended, unless the line is read for it for the first
// time and nobody waits.
func (w *keyWatches) tellLeases(c caller, path string, k *keyWatch, version int32) error {
	w.mu.Lock()
	leases := make(map[*lease]news)
	for l, known := range k.leases {
		if known.version != version {
			leases[l] = known
		}
	}
	w.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	all, err := w.s.list(c, path)
	if err != nil && err != zk.ErrNoNode {
		return err
	}
	for l, known := range leases {
		i := all.index(l.name)
		if i < 0 {
			if w.s.claims.lose(l) {
				w.s.sink.Lost(l.id, errGone)
			}
			continue
		}
		contended := known.version != unread || all.behind(i, w.s.claims.isLowered(l)) > 0
		w.s.sink.Contended(l.id, contended)
		w.mu.Lock()
		if _, ok := k.leases[l]; ok {
			k.leases[l] = news{version, contended}
		}
		w.mu.Unlock()
	}
	return nil
}

// tellContended tells the holders that their key is contended, by a write to its node.
func (s *session) tellContended(c caller, parent string) error {
	return do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Set(parent, nil, -1)
		return err
	})
}

// deletion is a member whose node is to be deleted if it has that version, or any if that is -1.
type deletion struct {
	name    string
	version int32
}

// deleteAndTell deletes members, and tells the holders that their key is contended. It does all in
// one step, or nothing.
func (s *session) deleteAndTell(c caller, parent string, all ...deletion) error {
	ops := make([]any, 0, len(all)+1)
	for _, d := range all {
		ops = append(ops, &zk.DeleteRequest{Path: parent + "/" + d.name, Version: d.version})
	}
	ops = append(ops, &zk.SetDataRequest{Path: parent, Version: -1})
	return do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Multi(ops...)
		return err
	})
}
