package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// maxPlace is how long a place in the queue lasts at most without a sign of life from
// its process.
const maxPlace = 10 * time.Second

// place is one running Acquire and, once its node is made, its place in the line.
type place struct {
	s      *session
	r      driver.Request
	parent string // the key's node
	mark   string
	done   chan struct{} // closed when it has become a lease or has failed
	woken  kit.Signal

	// Guarded by s.claims.mu.
	name    string // of its node; empty before it is made
	watches string // a path
	armed   bool   // the servers will tell when that changes
	gone    bool   // it was deleted
	lost    bool   // its node is gone: the servers' session has expired, or it was withdrawn

	// Of Acquire's goroutine.
	made     sending // the request that makes the node
	replaced bool    // the lease to replace has ended
	room     int32
	version  int32     // of the node
	acked    time.Time // before the last write to the node that was answered
	ahead    map[string]*sight
	key      int32 // the version of the key's node, when the line was last read
	behind   int   // who waited then, behind this place
	next     bool  // it was right behind those who held the key
	waits    bool  // it was reported that it waits
	opened   time.Time
}

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	p := &place{
		s: s, r: r, parent: s.keyPath(r.Key), mark: mark(r.Owner),
		done: make(chan struct{}), woken: kit.NewSignal(), ahead: make(map[string]*sight), opened: time.Now(),
	}
	if err := check(r); err != nil {
		s.claims.end(r.Owner, over)
		p.endReplaced()
		return driver.Grant{}, err
	}
	for {
		other, g, err := s.claims.open(p)
		switch {
		case err != nil:
			p.endReplaced()
			return driver.Grant{}, err
		case g != nil:
			return *g, nil
		case other == nil:
			return p.run(ctx)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-s.Closing:
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

func check(r driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("zookeeper: the lease to replace is of another key")}
	}
	return nil
}

// run makes the node, waits for its turn and takes the lease.
func (p *place) run(ctx context.Context) (driver.Grant, error) {
	c := p.s.by(ctx)
	g, err := driver.Grant{}, ctx.Err()
	if err == nil {
		err = p.enrol(c)
	}
	unread := false
	if err == nil {
		unread, err = p.turn(c)
	}
	if err == nil {
		g, err = p.take(c, unread)
	}
	if err != nil {
		p.giveUp()
		if errors.Is(err, zk.ErrSessionExpired) {
			err = driver.ErrPlaceLost
		}
		return driver.Grant{}, soften(err)
	}
	return g, nil
}

// soften is classify, and leaves what the contract names as it is.
func soften(err error) error {
	held := new(driver.HeldError)
	if errors.As(err, &held) || errors.Is(err, driver.ErrPlaceLost) || errors.Is(err, driver.ErrNotHeld) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return classify(err)
}

// giveUp burns the owner, and has the end of its node seen to.
func (p *place) giveUp() {
	p.s.claims.leave(p)
	if p.made.begun && !p.isGone() {
		p.s.owe(debt{parent: p.parent, mark: p.mark, name: p.name, after: p.made.done, ttl: p.r.TTL})
	}
	p.endReplaced()
}

// isGone reports whether it is certain that the place has no node.
func (p *place) isGone() bool {
	p.s.claims.mu.Lock()
	defer p.s.claims.mu.Unlock()
	return p.lost
}

// endReplaced has the end of the lease to replace seen to, unless the request has
// ended it.
func (p *place) endReplaced() {
	if old := p.r.Replace; old != nil && !p.replaced {
		p.replaced = true
		p.s.claims.takeBack(old.Owner, released)
		p.s.owe(debt{parent: p.s.keyPath(old.Key), mark: mark(old.Owner), name: refOf(old), after: p.made.done, ttl: p.r.TTL})
	}
}

// refOf returns the name of a lease's node, "" if its Ref is not one.
func refOf(e *driver.Ending) string {
	if m, ok := parseMember(e.Ref); ok && m.mark == mark(e.Owner) {
		return m.name
	}
	return ""
}

// length is how long the place lasts after each sign of life.
func (p *place) length() time.Duration { return min(p.r.TTL, maxPlace) }

// lasts is the end of the place, unless it gives another sign of life.
func (p *place) lasts() time.Time { return driver.Deadline(p.acked, p.length()) }

// enrol makes the node. If the reply is lost, the owner's mark in the name tells it
// among the others.
func (p *place) enrol(c caller) error {
	prefix := p.parent + "/" + memberPrefix(p.r.Mode, p.r.Limit, p.r.Owner)
	data := []byte(record{ttl: p.length()}.String())
	old := p.replacing(c)
	for range 4 { // the key's node may go again before there is a member in it
		p.acked = time.Now()
		p.made = sending{}
		path, err := ask(p.s, c, &p.made, func(conn *zk.Conn) (string, error) {
			if old == "" {
				return conn.Create(prefix, data, zk.FlagEphemeralSequential, p.s.acl)
			}
			res, err := conn.Multi(
				&zk.CreateRequest{Path: prefix, Data: data, Acl: p.s.acl, Flags: zk.FlagEphemeralSequential},
				&zk.DeleteRequest{Path: old, Version: -1})
			if err != nil {
				return "", err
			}
			return res[0].String, nil
		})
		var name string
		switch {
		case err == nil:
			name = path[len(p.parent)+1:]
		case err == zk.ErrNoNode && old != "":
			old = "" // it ended before
			continue
		case err == zk.ErrNoNode:
			if err := p.s.makeKey(c, p.parent); err != nil && !p.bears(c, err) {
				return err
			}
			continue
		case p.made.begun && again(c, err):
			m, ok, ferr := p.s.find(c, p.parent, p.mark)
			if ferr != nil {
				return err
			}
			if !ok { // nor will it be there
				continue
			}
			name = m.name
		default:
			return err
		}
		m, ok := parseMember(name)
		if !ok {
			return &driver.PermanentError{Err: errors.New("zookeeper: the numbers of the key's nodes are used up; they begin anew when nobody has held it or waited for it for some minutes")}
		}
		p.s.claims.mu.Lock()
		p.name = name
		p.s.claims.mu.Unlock()
		p.room = m.room
		p.replaced = old != ""
		p.endReplaced() // it may have ended before
		return nil
	}
	return errors.New("zookeeper: the key's node went away, or the connection did, as often as it was made")
}

// replacing returns the node of the lease to replace, or "" if there is none. The
// lease is over from here on.
func (p *place) replacing(c caller) string {
	old := p.r.Replace
	if old == nil {
		return ""
	}
	p.s.claims.takeBack(old.Owner, released)
	if name := refOf(old); name != "" {
		return p.parent + "/" + name
	}
	if m, ok, err := p.s.find(c, p.parent, mark(old.Owner)); ok && err == nil {
		return p.parent + "/" + m.name
	}
	return ""
}

// take turns the place, whose turn it is, into a lease: by a write to its node, whose
// number is the token. If the line is unread it looks meanwhile who waits.
func (p *place) take(c caller, unread bool) (driver.Grant, error) {
	var reading sync.WaitGroup
	if unread {
		reading.Go(func() { p.follow(c) })
	}
	w, err := p.claim(c)
	reading.Wait()
	if err != nil {
		return driver.Grant{}, err
	}
	l := &lease{
		id: p.r.ID, parent: p.parent, name: p.name, room: p.room,
		version: w.stat.Version, token: w.stat.Mzxid, since: w.stat.Mtime,
		ends:    w.sent.Add(p.r.TTL),
		believe: driver.Deadline(w.sent, p.s.client.lasting(p.r.TTL)),
	}
	g := driver.Grant{ID: l.id, Ref: l.name, Token: l.token, Deadline: l.believe, Contended: p.behind > 0}
	if !p.s.claims.hold(p, l, p.key) {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	return g, nil
}

// claim writes to the node that it is a lease.
func (p *place) claim(c caller) (written, error) {
	rec := record{state: granted, ttl: p.r.TTL}
	path := p.parent + "/" + p.name
	for {
		w, err := p.s.set(c, path, rec, p.version)
		if err == zk.ErrBadVersion { // an earlier try was executed
			var n node
			if n, err = p.s.get(c, path); err == nil {
				p.version = n.stat.Version
				continue
			}
		}
		switch {
		case err == nil:
			return w, nil
		case err == zk.ErrNoNode:
			return written{}, driver.ErrPlaceLost
		case !p.bears(c, err):
			return written{}, err
		}
	}
}

// bears reports whether to go on after an error: while the place lasts, or until an
// attempt's time is up. It pauses a little.
func (p *place) bears(c caller, err error) bool {
	if !lostReply(err) {
		return false
	}
	patience := p.opened.Add(p.s.timeout)
	if p.waits {
		patience = driver.Later(patience, p.lasts())
	}
	return time.Now().Before(patience) && c.ctx.Err() == nil && kit.Sleep(c.ctx, firstPause)
}
