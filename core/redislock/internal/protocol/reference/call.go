package reference

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// call is one run of a script.
type call struct {
	key  string
	args []string
	err  error // of reading the arguments
	us   int64 // the time in microseconds
	now  int64 // and in ms

	lock   *lock
	before *lock
	wrote  bool

	grantPush bool // the holder has to be told that it holds
	waitPush  bool // the holder has to be told that somebody waits
	more      bool
}

var errArguments = errors.New("wrong arguments for the script")

func (c *call) open(l *lock) {
	if l == nil || l.until <= c.now {
		l = &lock{}
	}
	c.before = l.clone()
	c.lock = l.clone()
	c.tick()
}

// tick applies the passing of time, also where it passed backwards.
func (c *call) tick() {
	l := c.lock
	if !l.held {
		return
	}
	if l.expires > c.now+l.length {
		l.expires = c.now + l.length
	}
	if l.expires <= c.now {
		if l.owner != "" {
			l.bury(l.owner)
		}
		l.free()
	}
}

func (c *call) mine(owner string) bool { return c.lock.held && c.lock.owner == owner }

func (c *call) left() int64 {
	if !c.lock.held {
		return 0
	}
	return c.lock.expires - c.now
}

func (c *call) grant(owner, channel string, length, expires int64) {
	l := c.lock
	l.held, l.owner, l.channel, l.length, l.expires = true, owner, channel, length, expires
	l.token = max(l.token+1, c.us)
}

func (c *call) extend(length int64) {
	c.lock.expires = max(c.lock.expires, c.now+length)
	c.lock.length = max(c.lock.length, length)
}

// promote gives a free key to the first in the queue who is still there.
func (c *call) promote(self string) {
	l := c.lock
	for range looks {
		if l.held || len(l.queue) == 0 {
			return
		}
		p := l.queue[0]
		if p == nil {
			l.queue = l.queue[1:]
			continue
		}
		l.leave(0)
		limit := min(p.limit, c.now+p.enrol) // the clock may have gone back
		if limit > c.now {
			c.grant(p.owner, p.channel, p.enrol, max(limit, c.now+p.enrol/3))
			c.grantPush = p.owner != self
		}
	}
	c.more = !l.held && len(l.queue) > 0
}

// request is an owner that wants the key.
type request struct {
	owner, channel string
	length, enrol  int64
	create, wait   bool
}

func (c *call) seek(r request) protocol.Status {
	l := c.lock
	if c.mine(r.owner) {
		c.extend(r.length)
		l.channel = r.channel
		return protocol.Granted
	}
	at := l.place(r.owner)
	if at >= 0 {
		p := l.queue[at]
		p.enrol = max(p.enrol, r.enrol)
		p.limit, p.channel = c.now+p.enrol, r.channel
	}
	c.promote(r.owner)
	switch {
	case c.mine(r.owner):
		c.extend(r.length)
		l.channel = r.channel
		return protocol.Granted
	case at >= 0:
		c.waitPush = c.head(r.owner)
		return protocol.Queued
	case !r.create, c.isOver(r.owner):
		return protocol.Over
	case !l.held && len(l.queue) == 0:
		c.grant(r.owner, r.channel, r.length, c.now+r.length)
		return protocol.Granted
	case !r.wait:
		c.waitPush = true
		return protocol.Busy
	}
	l.queue = append(l.queue, &place{owner: r.owner, channel: r.channel, enrol: r.enrol, limit: c.now + r.enrol})
	c.waitPush = l.waiting() == 1
	return protocol.Queued
}

func (c *call) isOver(owner string) bool {
	for _, o := range c.lock.ended {
		if o == owner {
			return true
		}
	}
	return false
}

func (c *call) head(owner string) bool { return c.lock.place(owner) == 0 }

func (c *call) acquire() []any {
	if len(c.args) != 6 {
		c.err = fmt.Errorf("%w acquire", errArguments)
		return nil
	}
	r := request{owner: c.args[0], channel: c.args[1], length: c.number(2), enrol: c.number(3), create: c.number(4) == 1, wait: c.number(5) == 1}
	status := c.seek(r)
	c.close()
	head := status == protocol.Queued && c.head(r.owner)
	return []any{status.String(), c.token(), c.lock.waiting(), bit(head), c.left(), bit(c.more)}
}

func (c *call) end() []any {
	if len(c.args) != 2 && len(c.args) != 6 {
		c.err = fmt.Errorf("%w end", errArguments)
		return nil
	}
	l, owner, keep := c.lock, c.args[0], c.number(1)
	status := protocol.NotMine
	if l.token == 0 {
		status = protocol.Absent
	}
	if c.mine(owner) {
		status = protocol.Ended
		granted := min(l.token/1000, c.now)
		l.free()
		if rest := granted + keep - c.now; rest > 0 {
			l.held, l.length, l.expires = true, rest, c.now+rest
		}
	} else if at := l.place(owner); at >= 0 {
		status = protocol.Withdrawn
		l.leave(at)
	}
	l.bury(owner)
	var next protocol.Status
	if status == protocol.Ended && len(c.args) == 6 {
		next = c.seek(request{owner: c.args[2], channel: c.args[3], length: c.number(4), enrol: c.number(5), create: true, wait: true})
	} else {
		c.promote("")
	}
	c.close()
	head := next == protocol.Queued && c.head(c.args[2])
	name := ""
	if next != 0 {
		name = next.String()
	}
	return []any{status.String(), c.token(), l.waiting(), bit(c.more), name, bit(head), c.left()}
}

func (c *call) renew() []any {
	if len(c.args) != 2 {
		c.err = fmt.Errorf("%w renew", errArguments)
		return nil
	}
	status := protocol.Lost
	if c.mine(c.args[0]) {
		status = protocol.Renewed
		c.extend(c.number(1))
	} else {
		c.promote("")
	}
	c.close()
	return []any{status.String(), c.token(), c.lock.waiting()}
}

func (c *call) inspect() []any {
	return []any{bit(c.lock.held), c.token(), c.lock.waiting(), c.left()}
}

func (c *call) close() { c.wrote = c.err == nil && !c.lock.equal(c.before) }

// messages is what the run published: the holder's process learns of its lease
// and of others who wait; a grant says both.
func (c *call) messages() []Message {
	l := c.lock
	if !l.held || l.channel == "" || !c.grantPush && !c.waitPush {
		return nil
	}
	kind := protocol.PushWait
	if c.grantPush {
		kind = protocol.PushGrant
	}
	payload := string(rune(kind)) + l.owner + c.token() + ":" + strconv.FormatInt(l.waiting(), 10) + ":" + c.key
	return []Message{{Channel: l.channel, Payload: payload}}
}

func (c *call) token() string { return strconv.FormatInt(c.lock.token, 10) }

func (c *call) number(i int) int64 {
	n, err := strconv.ParseInt(c.args[i], 10, 64)
	if err != nil || n < 0 {
		c.err = fmt.Errorf("%w: argument %d is no number", errArguments, i)
	}
	return n
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
