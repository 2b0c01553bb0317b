package zklock

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// bells are how holders hear of others. Whoever finds a key taken, or ends another's
// lease, writes to the key's own node, and the holders watch that. So a holder is
// woken by those who mean it only, and not by each who comes and goes.
//
// A watch is left in place when the lease ends, for the session's next lease of the
// key. The servers end it with the key's node.
type bells struct {
	s    *session
	mu   sync.Mutex
	keys map[string]*bell // by the path of the key's node
}

// bell is a key's.
type bell struct {
	// The session's leases, each with the version of the key's node when it was last
	// looked who waits.
	leases  map[*lease]int32
	version int32 // when the node was last watched
	listen  bool  // a watch is in place, or about to be
	busy    bool  // a goroutine is at it
	rung    bool  // while busy
}

func (b *bells) init(s *session) {
	b.s = s
	b.keys = make(map[string]*bell)
}

// join has a lease hear the bell. known is the version of the key's node when its
// holder last looked who waits.
func (b *bells) join(l *lease, known int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[l.parent]
	if k == nil {
		k = &bell{leases: make(map[*lease]int32)}
		b.keys[l.parent] = k
	}
	k.leases[l] = known
	switch {
	case k.busy:
		k.rung = true
	case !k.listen || k.version != known:
		b.attend(l.parent, k)
	}
}

// leave ends that.
func (b *bells) leave(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[l.parent]; k != nil {
		delete(k.leases, l)
		b.tidy(l.parent, k)
	}
}

// tidy forgets a key that there is no reason to know. b.mu is held.
func (b *bells) tidy(path string, k *bell) {
	if len(k.leases) == 0 && !k.listen && !k.busy {
		delete(b.keys, path)
	}
}

// clear forgets all watches: the servers' session has expired.
func (b *bells) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.keys)
}

// rung takes an event.
func (b *bells) rung(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[path]
	switch {
	case k == nil || !k.listen:
	case k.busy:
		k.rung = true
	default:
		k.listen = false
		if len(k.leases) > 0 {
			b.attend(path, k)
		}
		b.tidy(path, k)
	}
}

// attend watches the key's node. b.mu is held.
func (b *bells) attend(path string, k *bell) {
	k.listen, k.busy, k.rung = true, true, false
	if !b.s.Start(func() { b.answer(path, k) }) {
		k.listen, k.busy = false, false
	}
}

// answer watches the key's node, until nobody has rung that a lease has not heard.
func (b *bells) answer(path string, k *bell) {
	by := b.s.itself()
	for pause := firstPause; ; {
		n, err := b.s.getW(by, path)
		version := int32(-1)
		if err == nil {
			version = n.stat.Version
		}
		if err == nil || err == zk.ErrNoNode {
			err = b.look(by, path, k, version)
		}
		b.mu.Lock()
		k.version = version
		if b.keys[path] != k { // the servers' session has expired
			b.mu.Unlock()
			return
		}
		if again := err != nil || k.rung; !again || len(k.leases) == 0 || by.ctx.Err() != nil {
			k.busy, k.listen = false, !again && version >= 0
			b.tidy(path, k)
			b.mu.Unlock()
			return
		}
		k.rung = false
		b.mu.Unlock()
		if err != nil && kit.Sleep(by.ctx, pause) {
			pause = min(2*pause, maxPause)
		}
	}
}

// look tells the session's leases of a key what has become of them, if they do not
// know this version: who is not in the line any more is lost, and others were asked
// for.
func (b *bells) look(by caller, path string, k *bell, version int32) error {
	b.mu.Lock()
	var leases []*lease
	for l, known := range k.leases {
		if known != version {
			leases = append(leases, l)
		}
	}
	b.mu.Unlock()
	if len(leases) == 0 {
		return nil
	}
	all, err := b.s.list(by, path)
	if err != nil && err != zk.ErrNoNode {
		return err
	}
	for _, l := range leases {
		if all.index(l.name) < 0 {
			if b.s.claims.lose(l) {
				b.s.sink.Lost(l.id, errGone)
			}
			continue
		}
		b.s.sink.Contended(l.id, true)
		b.mu.Lock()
		if _, ok := k.leases[l]; ok {
			k.leases[l] = version
		}
		b.mu.Unlock()
	}
	return nil
}

// ring tells the holders of a key.
func (s *session) ring(c caller, parent string) error {
	return do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Set(parent, nil, -1)
		return err
	})
}

// endAndRing deletes members, each if its node's version is the one given or that is
// -1, and tells the holders: all in one step, or nothing.
func (s *session) endAndRing(c caller, parent string, version int32, names ...string) error {
	ops := make([]any, 0, len(names)+1)
	for _, name := range names {
		ops = append(ops, &zk.DeleteRequest{Path: parent + "/" + name, Version: version})
	}
	ops = append(ops, &zk.SetDataRequest{Path: parent, Version: -1})
	return do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Multi(ops...)
		return err
	})
}
