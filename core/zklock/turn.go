package zklock

import (
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// look is how often a waiter looks at what it watches, in case an event was lost.
const look = wake * 7 / 10

// sight is what a waiter has seen of a member before it.
type sight struct {
	version int32
	state   state
	ttl     time.Duration
	since   time.Time // after the answer that showed this version first
}

// turn waits until the place is among those that hold the key. unread reports that it
// has learnt so without reading the line.
func (p *place) turn(c caller) (unread bool, err error) {
	for {
		t, first, err := p.read(c)
		switch {
		case err == nil && first == nil:
			return false, nil
		case err == nil && !p.r.Wait:
			return false, p.refuse(c, first[0])
		case err == nil:
			if !p.waits {
				p.waits = true
				p.s.sink.Waiting(p.r.ID)
				if p.next { // otherwise the holders know of a waiter, or will look before they hold
					p.s.Start(func() { _ = p.s.ring(p.s.itself(), p.parent) }) // if it fails, renewals tell
				}
			}
			var mine bool
			if mine, err = p.wait(c, t, first); mine {
				return true, nil
			}
		}
		if err != nil && !p.bears(c, err) {
			return false, err
		}
	}
}

// read looks at the line. first are the members that the place is to keep an eye on;
// nil if it is its turn.
func (p *place) read(c caller) (t target, first []member, err error) {
	all, err := p.s.list(c, p.parent)
	if err == zk.ErrNoNode {
		return t, nil, driver.ErrPlaceLost
	}
	if err != nil {
		return t, nil, err
	}
	i := all.index(p.name)
	if i < 0 {
		return t, nil, driver.ErrPlaceLost
	}
	p.key = all.version
	n := all.holders(false)
	if i >= n && all.writerFirst(i) {
		head, err := p.sight(c, all.line[0].name, false)
		if err != nil && err != zk.ErrNoNode {
			return t, nil, err
		}
		if err == zk.ErrNoNode {
			return p.read(c)
		}
		if head.state == lowered {
			n = all.holders(true)
		}
	}
	if i < n {
		p.behind = len(all.line) - n
		return t, nil, nil
	}
	p.behind = len(all.line) - 1 - i
	t, p.next = all.target(i, n), i == n
	if p.next { // nobody else would see the holders' end
		return t, all.line[:n], nil
	}
	j := all.index(t.name)
	return t, all.line[j : j+1], nil
}

// follow looks who waits behind a place that has just become the first. If it cannot,
// the bell will tell.
func (p *place) follow(c caller) {
	p.key, p.behind = -1, 0
	if all, err := p.s.list(c, p.parent); err == nil {
		if i := all.index(p.name); i >= 0 {
			p.key, p.behind = all.version, all.line.behind(i, false)
		}
	}
}

// refuse withdraws a place that does not wait, and tells the holders that somebody
// has asked.
func (p *place) refuse(c caller, first member) error {
	held := new(driver.HeldError)
	if head, err := p.sight(c, first.name, false); err == nil && head.state != waiting {
		held.RetryAfter = head.ttl
	}
	if err := p.s.endAndRing(c, p.parent, -1, p.name); err == nil || err == zk.ErrNoNode {
		p.s.claims.mu.Lock()
		p.lost = true
		p.s.claims.mu.Unlock()
	}
	return held
}

// wait sleeps until the line is to be read again, and gives signs of life meanwhile.
// mine reports that nobody is before the place any more.
func (p *place) wait(c caller, t target, first []member) (mine bool, err error) {
	path := p.parent
	if t.name != "" {
		path += "/" + t.name
	}
	p.s.claims.watch(p, path)
	again, err := p.arm(c, t)
	if again || err != nil {
		return again && t.sole && p.vanished(), err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	glance := time.Now().Add(look)
	for {
		now := time.Now()
		if refresh := p.acked.Add(p.length() / 3); !now.Before(refresh) {
			if err := p.refresh(c); err != nil {
				return false, err
			}
			continue
		}
		if !now.Before(glance) {
			again, err := p.glance(c, t, first)
			if again || err != nil {
				return again && t.sole && p.vanished(), err
			}
			glance = time.Now().Add(look)
			continue
		}
		timer.Reset(min(glance.Sub(now), p.acked.Add(p.length()/3).Sub(now)))
		select {
		case <-p.woken:
			again, err := p.told(c, t)
			if again || err != nil {
				return again && t.sole && p.vanished(), err
			}
		case <-timer.C:
		case <-c.ctx.Done():
			return false, c.ctx.Err()
		case <-c.stop:
			return false, driver.ErrClosed
		}
	}
}

// vanished reports whether what the place watches was deleted.
func (p *place) vanished() bool {
	p.s.claims.mu.Lock()
	defer p.s.claims.mu.Unlock()
	return p.gone
}

// arm has the servers tell of the next change. again reports that there was one.
func (p *place) arm(c caller, t target) (again bool, err error) {
	if t.name != "" {
		return p.see(c, t.name, true)
	}
	names, err := ask(p.s, c, nil, func(conn *zk.Conn) (members, error) {
		names, stat, _, err := conn.ChildrenW(p.parent)
		if err != nil {
			return members{}, err
		}
		return members{parseLine(names), stat.Version}, nil
	})
	if err != nil {
		return false, err
	}
	i := names.index(p.name)
	return i < 0 || i < names.holders(false), nil
}

// told acts on a wake-up.
func (p *place) told(c caller, t target) (again bool, err error) {
	p.s.claims.mu.Lock()
	lost, armed, gone := p.lost, p.armed, p.gone
	p.armed = true
	p.s.claims.mu.Unlock()
	switch {
	case lost:
		return false, driver.ErrPlaceLost
	case gone:
		return true, nil
	case armed:
		return false, nil
	case t.name == "":
		return true, nil
	}
	return p.see(c, t.name, true)
}

// glance looks at what the place watches, though nothing was told, and at everybody
// whose end nobody else would see.
func (p *place) glance(c caller, t target, first []member) (again bool, err error) {
	if t.name == "" {
		if again, err = p.moved(c); again || err != nil {
			return again, err
		}
	}
	for _, m := range first {
		if again, err = p.see(c, m.name, false); again || err != nil {
			return again, err
		}
	}
	return false, nil
}

// moved reads the line for a place that watches all of it.
func (p *place) moved(c caller) (again bool, err error) {
	all, err := p.s.list(c, p.parent)
	if err != nil {
		return err == zk.ErrNoNode, ignore(err, zk.ErrNoNode)
	}
	i := all.index(p.name)
	return i < 0 || i < all.holders(false), nil
}

// see looks at a member before the place. again reports that it is gone, or is at
// something else than before, or was ended because it has given no sign of life for
// as long as it lasts: counted from when this process saw the latest one, which is
// later than its own process counts from.
func (p *place) see(c caller, name string, watch bool) (again bool, err error) {
	before := p.ahead[name]
	a, err := p.sight(c, name, watch)
	if err == zk.ErrNoNode {
		p.s.claims.mu.Lock()
		p.gone = p.gone || p.watches == p.parent+"/"+name
		p.s.claims.mu.Unlock()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if before != nil && before.state != a.state {
		return true, nil
	}
	if time.Since(a.since) <= a.ttl+driver.Margin(a.ttl) {
		return false, nil
	}
	err = p.s.endAndRing(c, p.parent, a.version, name)
	return true, ignore(err, zk.ErrNoNode, zk.ErrBadVersion)
}

// sight reads a member.
func (p *place) sight(c caller, name string, watch bool) (*sight, error) {
	read := p.s.get
	if watch {
		read = p.s.getW
	}
	n, err := read(c, p.parent+"/"+name)
	if err != nil {
		if err == zk.ErrNoNode {
			delete(p.ahead, name)
		}
		return nil, err
	}
	rec, err := parseRecord(n.data)
	if err != nil {
		return nil, &driver.PermanentError{Err: err}
	}
	a := &sight{n.stat.Version, rec.state, rec.ttl, time.Now()}
	if b := p.ahead[name]; b != nil && b.version == a.version {
		a.since = b.since
	}
	p.ahead[name] = a
	return a, nil
}

// refresh gives a sign of life.
func (p *place) refresh(c caller) error {
	w, err := p.s.set(c, p.parent+"/"+p.name, record{ttl: p.length()}, p.version)
	switch {
	case err == nil:
		p.version, p.acked = w.stat.Version, w.sent
	case err == zk.ErrNoNode:
		return driver.ErrPlaceLost
	case err == zk.ErrBadVersion: // an earlier one was executed
		n, err := p.s.get(c, p.parent+"/"+p.name)
		if err == zk.ErrNoNode {
			return driver.ErrPlaceLost
		}
		if err != nil {
			return err
		}
		p.version = n.stat.Version
	default:
		return err
	}
	return nil
}

// ignore returns nil for errors that are expected.
func ignore(err error, expected ...error) error {
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
