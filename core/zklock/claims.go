package zklock

import (
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// lease is one that the session holds. Its fields are guarded by claims.mu.
type lease struct {
	id      driver.ID
	parent  string
	name    string
	room    int32
	version int32 // of its node, as far as is known
	token   int64
	since   int64
	lowered bool      // was asked for at least
	ends    time.Time // at the servers, by this process's clock
	believe time.Time // the latest deadline given away
	timer   *time.Timer
}

// how says how an owner ended, or that its end is under way.
type how uint8

const (
	released  how = iota + 1 // by a release or a replacement
	releasing                // by a release that is not answered yet, asked for in time
	over                     // otherwise: expired, withdrawn, taken away, lost
)

// remembered is how many of the latest ended owners a session knows at least; it
// knows at most twice as many.
const remembered = 4096

// claims are a session's owners, from before their first request until some time
// after they have ended.
type claims struct {
	s  *session
	mu sync.Mutex

	places map[driver.Owner]*place
	leases map[driver.Owner]*lease
	young  map[driver.Owner]how // of ended owners: the latest
	old    map[driver.Owner]how

	watched map[string]map[*place]struct{} // by the path that they watch
}

func (c *claims) init(s *session) {
	c.s = s
	c.places = make(map[driver.Owner]*place)
	c.leases = make(map[driver.Owner]*lease)
	c.young = make(map[driver.Owner]how)
	c.watched = make(map[string]map[*place]struct{})
}

// how returns how an owner ended, 0 if it is not known to have. c.mu is held.
func (c *claims) how(o driver.Owner) how {
	if h := c.young[o]; h != 0 {
		return h
	}
	return c.old[o]
}

// note records an end. c.mu is held.
func (c *claims) note(o driver.Owner, h how) {
	if _, ok := c.young[o]; !ok && len(c.young) >= remembered {
		c.young, c.old = make(map[driver.Owner]how), c.young
	}
	c.young[o] = h
}

// end records an end.
func (c *claims) end(o driver.Owner, h how) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(o, h)
}

// open begins the acquisition of an owner. If it has been begun before, it returns
// the place that is at it, to be waited for, or the lease, or driver.ErrPlaceLost.
func (c *claims) open(p *place) (other *place, g *driver.Grant, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leases[p.r.Owner]; l != nil {
		return nil, &driver.Grant{ID: l.id, Ref: l.name, Token: l.token, Deadline: l.believe}, nil
	}
	if other := c.places[p.r.Owner]; other != nil {
		return other, nil, nil
	}
	if c.how(p.r.Owner) != 0 {
		return nil, nil, driver.ErrPlaceLost
	}
	c.places[p.r.Owner] = p
	return nil, nil, nil
}

// leave ends an acquisition that has failed.
func (c *claims) leave(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch(p)
	delete(c.places, p.r.Owner)
	c.note(p.r.Owner, over)
	close(p.done)
}

// hold turns an acquisition into a lease, unless the servers' session has expired.
// known is the version of the key's node when the place last looked who waits.
func (c *claims) hold(p *place, l *lease, known int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.lost {
		return false
	}
	c.unwatch(p)
	delete(c.places, p.r.Owner)
	c.leases[p.r.Owner] = l
	l.timer = time.AfterFunc(time.Until(l.ends), func() { c.due(l) })
	c.s.bells.join(l, known)
	close(p.done)
	return true
}

// due ends a lease whose TTL is over: its node would last as long as the servers'
// session.
func (c *claims) due(l *lease) {
	c.mu.Lock()
	if c.leases[l.id.Owner] != l {
		c.mu.Unlock()
		return
	}
	if left := time.Until(l.ends); left > 0 {
		l.timer.Reset(left)
		c.mu.Unlock()
		return
	}
	c.drop(l, over)
	c.mu.Unlock()
	c.s.owe(debt{parent: l.parent, mark: mark(l.id.Owner), name: l.name})
	c.s.sink.Lost(l.id, errExpired)
}

var (
	errExpired = errors.New("zookeeper: the lease was not renewed in time")
	errGone    = errors.New("zookeeper: somebody else has ended the lease")
	errSession = errors.New("zookeeper: the servers' session has expired")
)

// drop forgets a lease. c.mu is held.
func (c *claims) drop(l *lease, h how) {
	l.timer.Stop()
	delete(c.leases, l.id.Owner)
	c.note(l.id.Owner, h)
	c.s.bells.leave(l)
}

// lose ends a lease that the servers have no more, and reports whether it was
// believed to be held until then.
func (c *claims) lose(l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return false
	}
	c.drop(l, over)
	return true
}

// expire ends everything: the servers have deleted all nodes of the session.
func (c *claims) expire() {
	c.mu.Lock()
	var lost []*lease
	for _, l := range c.leases {
		c.drop(l, over)
		lost = append(lost, l)
	}
	for _, p := range c.places {
		if p.name != "" {
			p.lost = true
			p.woken.Set()
		}
	}
	c.mu.Unlock()
	for _, l := range lost {
		c.s.sink.Lost(l.id, errSession)
	}
}

// watch has a place told when what it watches changes, instead of what it watched
// before.
func (c *claims) watch(p *place, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch(p)
	p.watches, p.armed, p.gone = path, true, false
	if c.watched[path] == nil {
		c.watched[path] = make(map[*place]struct{})
	}
	c.watched[path][p] = struct{}{}
}

// unwatch ends that. c.mu is held.
func (c *claims) unwatch(p *place) {
	if all := c.watched[p.watches]; all != nil {
		delete(all, p)
		if len(all) == 0 {
			delete(c.watched, p.watches)
		}
	}
	p.watches = ""
}

// changed tells the places that watch a node. The servers tell only once, until it is
// watched anew.
func (c *claims) changed(path string, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.watched[path] {
		p.armed = false
		p.gone = p.gone || gone
		p.woken.Set()
	}
}

// stop ends the timers and reports whether leases are held.
func (c *claims) stop() (held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.leases {
		l.timer.Stop()
	}
	return len(c.leases) > 0
}
