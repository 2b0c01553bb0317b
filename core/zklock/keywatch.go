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
// A watch stays when the lease ends, for the session's next lease of the key, unless that is
// granted by a write to the key's node. Such a lease is watched a little later, so that one that
// ends at once costs no watch. The servers remove a watch with the key's node.
type keyWatches struct {
	s    *session
	mu   sync.Mutex
	keys map[string]*keyWatch // by the path of the key's node
}

// keyWatch is the watch of one key.
type keyWatch struct {
	// The session's leases, each with the version of the key's node at which the line was
	// last read for it.
	leases           map[*lease]int32
	version          int32       // of the key's node, when it was last watched
	watching         bool        // a watch is set, or is being set
	running          bool        // a goroutine executes run
	changedMeanwhile bool        // an event came while running
	timer            *time.Timer // starts run; nil if not set
}

func (w *keyWatches) init(s *session) {
	w.s = s
	w.keys = make(map[string]*keyWatch)
}

// watchAfter is how long a lease is not watched that a request got together with its node.
const watchAfter = 5 * time.Millisecond

// add watches the key of a lease, at once or a little later. keyVersion is the version of the
// key's node at which the line was last read for it.
func (w *keyWatches) add(l *lease, keyVersion int32, later bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[l.parent]
	if k == nil {
		k = &keyWatch{leases: make(map[*lease]int32)}
		w.keys[l.parent] = k
	}
	k.leases[l] = keyVersion
	switch {
	case k.running:
		k.changedMeanwhile = true
	case k.watching && k.version == keyVersion:
	case later:
		k.timer = time.AfterFunc(watchAfter, func() { w.startLate(l.parent, k) })
	default:
		w.start(l.parent, k)
	}
}

// startLate starts to watch the key's node if there is still a lease.
func (w *keyWatches) startLate(path string, k *keyWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[path] == k && len(k.leases) > 0 && !k.running && !k.watching {
		w.start(path, k)
	}
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
		if len(k.leases) > 0 {
			w.start(path, k)
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
// it is no longer in the line, and otherwise contended.
func (w *keyWatches) tellLeases(c caller, path string, k *keyWatch, version int32) error {
	w.mu.Lock()
	var leases []*lease
	for l, known := range k.leases {
		if known != version {
			leases = append(leases, l)
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
	for _, l := range leases {
		if all.index(l.name) < 0 {
			if w.s.claims.lose(l) {
				w.s.sink.Lost(l.id, errGone)
			}
			continue
		}
		w.s.sink.Contended(l.id, true)
		w.mu.Lock()
		if _, ok := k.leases[l]; ok {
			k.leases[l] = version
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
