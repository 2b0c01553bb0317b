package reference

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// call is one run of a script.
type call struct {
	key  string
	args []string
	err  error // of reading the arguments
	now  int64 // the time in ms

	before *lock
	lock   *lock
	left   *lock // what the server keeps of it
	there  bool  // the server had the key
	wrote  bool
	gone   bool         // the key is to be deleted
	draw   func() int64 // a token

	granted   []*holder // waited, and have to be told that they hold
	contended bool      // the holders have to be told that somebody waits
	more      bool
	expired   bool   // a lease was found to be over
	tellFirst *place // the first of the queue, to be told how soon a lease ends

	ousted   []*holder // their leases were taken from them, at the token oustedAt
	oustedAt int64
}

var errArguments = errors.New("wrong arguments for the script")

func (c *call) begin(l *lock) {
	if c.there = l != nil; !c.there {
		l = &lock{}
	}
	c.before = l.clone()
	c.lock = l.clone()
	c.lock.buriedUntil = min(c.lock.buriedUntil, c.now+protocol.Linger.Milliseconds())
	if c.lock.buriedUntil <= c.now {
		c.lock.buried, c.lock.buriedUntil = nil, 0
	}
	c.expireLeases()
}

// expireLeases removes the leases that are over, and shortens those that a backward step of
// the clock has made too long.
func (c *call) expireLeases() {
	l := c.lock
	for _, h := range slices.Backward(slices.Clone(l.holders)) {
		h.expires = min(h.expires, c.now+h.length)
		if h.expires <= c.now {
			l.end(h)
			c.expired = true
		}
	}
}

// ends returns how long it takes until the first of the leases is over.
func (c *call) ends() int64 {
	if len(c.lock.holders) == 0 {
		return 0
	}
	first := slices.MinFunc(c.lock.holders, func(a, b *holder) int { return cmp.Compare(a.expires, b.expires) })
	return first.expires - c.now
}

// last returns how long it takes until all leases are over.
func (c *call) last() int64 {
	last := c.now
	for _, h := range c.lock.holders {
		last = max(last, h.expires)
	}
	return last - c.now
}

// grant gives an owner a lease. Its token is 0 if only the owner knows it.
func (c *call) grant(owner, channel string, length, expires, room int64, text string, token int64) *holder {
	l := c.lock
	if text != "" {
		l.taker = trace{owner, text}
	}
	if token > 0 {
		l.token = token
	}
	h := &holder{owner: owner, channel: channel, room: room, token: token, expires: expires, length: length}
	l.holders = append(l.holders, h)
	return h
}

func (c *call) extend(h *holder, length int64) {
	h.expires = max(h.expires, c.now+length)
	h.length = max(h.length, length)
}

// promote grants the key to the first live places of the queue, as many as may hold it
// together.
func (c *call) promote(self string) {
	l := c.lock
	for range scanLimit {
		if l.exclusive() || len(l.queue) == 0 {
			return
		}
		p := l.queue[0]
		if p == nil {
			l.skip()
			continue
		}
		limit := p.ends(c.now)
		switch {
		case limit <= c.now:
			l.removePlace(0)
		case l.fits(p.room):
			text := l.traceOf(0)
			l.removePlace(0)
			least := c.now + p.placeTTL/3
			if c.expired {
				least = c.now
			}
			h := c.grant(p.owner, p.channel, p.placeTTL, max(limit, least), p.room, text, c.draw())
			if p.owner != self {
				c.granted = append(c.granted, h)
			}
		default:
			return
		}
	}
	c.more = !l.exclusive() && len(l.queue) > 0
}

// request is an owner that asks for the key.
type request struct {
	owner, channel   string
	length, placeTTL int64
	create, wait     bool
	room             int64
	trace            string
	most             int64 // places that there may be before a new one; 0 is any number
}

// grantOrQueue finds out what an owner gets.
func (c *call) grantOrQueue(r request) protocol.Status {
	l := c.lock
	at := l.placeOf(r.owner)
	if at >= 0 && l.holder(r.owner) == nil {
		p := l.queue[at]
		p.placeTTL = max(p.placeTTL, r.placeTTL)
		p.limit, p.channel = c.now+p.placeTTL, r.channel
	}
	c.promote(r.owner)
	if h := l.holder(r.owner); h != nil {
		c.extend(h, r.length)
		h.channel = r.channel
		return protocol.Granted
	}
	switch {
	case at >= 0:
		c.contended = c.head(r.owner)
		return protocol.Queued
	case !r.create, slices.Contains(l.buried, r.owner):
		return protocol.Over
	case len(l.queue) == 0 && l.fits(r.room):
		c.grant(r.owner, r.channel, r.length, c.now+r.length, r.room, r.trace, c.draw())
		return protocol.Granted
	case !r.wait:
		c.contended = true
		return protocol.Busy
	}
	if r.most > 0 && l.waiting() >= r.most {
		c.clear()
		if l.waiting() >= r.most {
			return protocol.Full
		}
	}
	l.noteTrace(len(l.queue), r.owner, r.trace)
	l.queue = append(l.queue, &place{owner: r.owner, channel: r.channel, placeTTL: r.placeTTL, limit: c.now + r.placeTTL, room: r.room})
	c.contended = l.waiting() == 1
	return protocol.Queued
}

// clear removes the places that have ended among deadLimit of the queue, from one that goes by the time.
func (c *call) clear() {
	l, first, n := c.lock, c.lock.head, int64(len(c.lock.queue))
	for k := int64(1); k <= min(n, deadLimit); k++ {
		i := first + (c.now+k)%n - l.head
		if i >= 0 && i < int64(len(l.queue)) && l.queue[i] != nil && l.queue[i].ends(c.now) <= c.now {
			l.removePlace(int(i))
		}
	}
}

func (c *call) head(owner string) bool { return c.lock.placeOf(owner) == 0 }

func (c *call) acquire() any {
	if len(c.args) < 4 || len(c.args) > 7 {
		c.err = fmt.Errorf("%w acquire", errArguments)
		return nil
	}
	r := request{
		owner: c.args[0], channel: c.args[1], length: c.number(2),
		create: strings.Contains(c.args[3], "c"), wait: strings.Contains(c.args[3], "w"),
	}
	if digits := strings.TrimPrefix(c.args[3], "cw"); digits != c.args[3] && digits != "" {
		if r.most, c.err = strconv.ParseInt(digits, 10, 64); c.err != nil {
			return nil
		}
	}
	r.placeTTL, r.room = min(r.length, protocol.MaxPlaceTTL.Milliseconds()), 1
	if len(c.args) >= 6 {
		r.placeTTL, r.room = c.number(4), c.number(5)
	}
	if len(c.args)%2 == 1 {
		r.trace = c.args[len(c.args)-1]
	}
	status := c.grantOrQueue(r)
	c.finish()
	if status == protocol.Granted {
		if c.lock.waiting() == 0 {
			return c.token(r.owner)
		}
		return []any{status.String(), c.token(r.owner), c.lock.waiting(), int64(0), int64(0), bit(c.more), "", ""}
	}
	head := status == protocol.Queued && c.head(r.owner)
	channel, text := c.taker()
	return []any{status.String(), c.token(r.owner), c.lock.waiting(), bit(head), c.ends(), bit(c.more), channel, text}
}

func (c *call) end() any {
	if len(c.args) != 3 && len(c.args) != 8 && len(c.args) != 9 {
		c.err = fmt.Errorf("%w end", errArguments)
		return nil
	}
	l, owner, keep, bury := c.lock, c.args[0], c.number(2), c.args[1] == "b"
	if c.before.thin && !bury && keep == 0 && len(c.args) == 3 && l.holder(owner) != nil {
		c.gone = true
		return int64(1)
	}
	first, kept := c.head(owner), false
	status := protocol.NotMine
	if !c.there {
		status = protocol.Absent
	}
	if h := l.holder(owner); h != nil {
		status = protocol.Ended
		granted := min(h.since()/1000, c.now)
		if rest := granted + keep - c.now; rest > 0 {
			kept = true
			h.owner, h.channel, h.length, h.expires = "", "", rest, c.now+rest
		} else {
			l.end(h)
		}
	} else if at := l.placeOf(owner); at >= 0 {
		status = protocol.Withdrawn
		l.removePlace(at)
	}
	if bury {
		c.bury(owner)
	}
	var next protocol.Status
	name, nextOwner := "", ""
	if len(c.args) >= 8 {
		nextOwner = c.args[3]
	}
	if status == protocol.Ended && nextOwner != "" {
		text := ""
		if len(c.args) == 9 {
			text = c.args[8]
		}
		next = c.grantOrQueue(request{
			owner: nextOwner, channel: c.args[4], length: c.number(5), placeTTL: c.number(6),
			create: true, wait: true, room: c.number(7), trace: text,
		})
		name = next.String()
	} else {
		c.promote("")
	}
	if kept || first {
		c.tellFirstOfEnd()
	}
	c.finish()
	if status == protocol.Ended && nextOwner == "" && l.waiting() == 0 && len(l.holders) == 0 {
		return int64(1)
	}
	head := next == protocol.Queued && c.head(nextOwner)
	ousted := int64(0)
	if status == protocol.NotMine {
		ousted = l.ousted
	}
	channel, text := "", ""
	if next == protocol.Queued {
		channel, text = c.taker()
	}
	return []any{status.String(), c.token(nextOwner), l.waiting(), bit(c.more), name, bit(head), c.ends(), strconv.FormatInt(ousted, 10), channel, text}
}

// tellFirstOfEnd tells the first of the queue when a lease ends before it would ask again.
func (c *call) tellFirstOfEnd() {
	if q := c.lock.queue; len(q) > 0 && q[0] != nil && c.ends() > 0 && c.ends() < q[0].placeTTL/3 {
		c.tellFirst = q[0]
	}
}

func (c *call) renew() any {
	if len(c.args) != 4 {
		c.err = fmt.Errorf("%w renew", errArguments)
		return nil
	}
	owner, l := c.args[0], c.lock
	status, token := protocol.Lost, c.token(owner)
	h := l.holder(owner)
	if h != nil {
		if h.token == 0 {
			h.token = c.number(3)
		}
		l.token = max(l.token, h.token)
		status, token = protocol.Renewed, strconv.FormatInt(h.token, 10)
		c.extend(h, c.number(1))
		if c.number(2) == 1 && h.room == 1 {
			h.room = 0
		}
	}
	c.promote("")
	c.finish()
	if status == protocol.Renewed && l.waiting() == 0 {
		return token
	}
	return []any{status.String(), token, l.waiting()}
}

func (c *call) inspect() []any {
	all, waiting := []any{}, c.lock.waiting()
	for _, p := range c.lock.queue[:min(len(c.lock.queue), scanLimit)] {
		if p != nil && p.ends(c.now) <= c.now {
			waiting--
		}
	}
	for _, h := range c.lock.holders {
		all = append(all, h.room, strconv.FormatInt(h.since(), 10), h.expires-c.now, bit(h.owner == ""), h.channel, c.lock.taker.of(h.owner))
	}
	return []any{bit(len(all) > 0), strconv.FormatInt(c.lock.token, 10), waiting, c.ends(), all}
}

func (c *call) oust() []any {
	l, upTo := c.lock, c.number(0)
	var stay []*holder
	var n int64
	for _, h := range l.holders {
		if h.since() > upTo {
			stay = append(stay, h)
			continue
		}
		n++
		if h.owner != "" {
			c.bury(h.owner)
			c.ousted = append(c.ousted, h)
		}
	}
	if n > 0 {
		l.token, l.ousted = c.draw(), max(l.ousted, upTo)
		c.oustedAt = l.token
	}
	l.holders = stay
	c.promote("")
	c.finish()
	return []any{n, strconv.FormatInt(l.token, 10), l.waiting(), bit(c.more)}
}

func (c *call) bury(owner string) {
	c.lock.bury(owner)
	c.lock.buriedUntil = c.now + protocol.Linger.Milliseconds()
}

// take is SET with NX: it grants an absent key.
func (c *call) take() any {
	if len(c.args) != 2 || len(c.args[0]) < 16 {
		c.err = fmt.Errorf("%w take", errArguments)
		return nil
	}
	if c.there {
		return int64(0)
	}
	owner, rest := c.args[0][:16], c.args[0][16:]
	fields := strings.SplitN(rest, ":", 6)
	n, err := strconv.Atoi(fields[4])
	if err != nil || len(fields[5]) < n {
		c.err = fmt.Errorf("%w take", errArguments)
		return nil
	}
	channel, text := fields[5][:n], fields[5][n:]
	c.grant(owner, channel, c.number(1), c.now+c.number(1), 1, text, 0)
	c.finish()
	return int64(1)
}

// finish decides whether the key is written, in which form, and for how long.
func (c *call) finish() {
	l := c.lock
	idle := l.waiting() == 0
	for _, h := range l.holders {
		idle = idle && h.owner == ""
	}
	keep := c.last() + protocol.Linger.Milliseconds()
	if idle {
		keep = max(c.last(), l.buriedUntil-c.now)
	}
	c.gone = keep <= 0
	c.wrote = c.err == nil && !l.equal(c.before)
	switch {
	case c.gone:
		return
	case l.exclusive() && !idle && l.waiting() == 0 && len(l.buried) == 0 && (c.before.thin || !c.there):
		h := l.holders[0]
		c.left = &lock{thin: true, holders: l.holders, token: h.since()}
		if text := l.taker.of(h.owner); text != "" {
			c.left.taker = trace{h.owner, text}
		}
		keep = c.last()
	default:
		c.left = l
		l.thin = false
	}
	c.left.until = c.now + keep
}

// messages returns what the run published. A process learns that one of its owners was
// granted the key, has others waiting behind it, or has lost its lease.
func (c *call) messages() []Message {
	l := c.lock
	var all []Message
	tell := func(kind protocol.PushKind, h *holder, token int64) {
		payload := string(rune(kind)) + h.owner + strconv.FormatInt(token, 10) + ":" + strconv.FormatInt(l.waiting(), 10) + ":" + c.key
		all = append(all, Message{Channel: h.channel, Payload: payload})
	}
	for _, h := range c.ousted {
		tell(protocol.PushLost, h, c.oustedAt)
	}
	for _, h := range c.granted {
		tell(protocol.PushGrant, h, h.token)
	}
	if p := c.tellFirst; p != nil {
		tell(protocol.PushEnds, &holder{owner: p.owner, channel: p.channel}, c.ends())
	}
	if c.contended && len(all) == 0 {
		for _, h := range l.holders {
			if h.owner != "" {
				tell(protocol.PushWait, h, h.since())
			}
		}
	}
	return all
}

// taker returns the channel and the trace of the first who holds.
func (c *call) taker() (channel, text string) {
	for _, h := range c.lock.holders {
		if h.owner != "" {
			return h.channel, c.lock.taker.of(h.owner)
		}
	}
	return "", ""
}

// token returns the owner's own token if it holds the key, and else the latest of the key.
func (c *call) token(owner string) string {
	token := c.lock.token
	if h := c.lock.holder(owner); h != nil {
		token = h.token
	}
	return strconv.FormatInt(token, 10)
}

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
