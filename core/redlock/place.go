package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// place is one running Acquire: the votes that its owner has gathered and, once it
// waits, its places in the nodes' queues. Everything but the way in for replies and
// pushes is of Acquire's goroutine.
type place struct {
	s      *session
	r      driver.Request
	bound  time.Duration // of one attempt at a node
	length time.Duration // of a place in the queue
	began  time.Time
	sides  []side
	ticket int64 // 0: none yet
	events chan event
	wake   kit.Signal

	told   bool      // the sink, that it waits
	splits int       // in a row: attempts that got votes, and too few
	since  time.Time // votes are held that are too few; zero: none are
	swept  bool      // and the other nodes were asked since
	rtt    time.Duration

	mu      sync.Mutex      // locked after claims.mu, if both are
	ctx     context.Context // of its requests
	cancel  context.CancelFunc
	pending int    // requests whose replies are to come
	nudged  []bool // nodes to be asked at once
	left    bool   // Acquire has returned
	token   int64  // with this, if it was granted
}

// side is one node as a place sees it.
type side struct {
	asking   bool // a vote is asked for, or given back: one after the other
	again    bool // and is to be asked for again at once
	answered bool // last is the node's answer to the latest request
	last     answer
	err      error // why there is none
	fails    int   // in a row
	voted    bool
	sent     time.Time // before the request that got the vote left
	queued   bool      // the place in the queue is confirmed
	acked    time.Time // before the request that was last answered left
	next     time.Time // when to ask again
	accepted bool      // the token that is proposed
	refused  bool      // likewise
	oldEnded bool      // the lease to replace has ended here
	known    bool      // the node may know the owner, now or later
	doubt    bool      // a copy of some request may be executed late
}

// event is a reply that concerns a place.
type event struct {
	node   int
	op     operation
	ticket int64 // that was asked for
	reply
}

func (s *session) newPlace(r driver.Request) *place {
	p := &place{
		s: s, r: r, bound: s.bound(r.TTL), length: min(maxPlace, r.TTL), began: time.Now(),
		sides:  make([]side, len(s.nodes)),
		nudged: make([]bool, len(s.nodes)),
		events: make(chan event, 4*len(s.nodes)), // one vote and one proposal at a time
		wake:   kit.NewSignal(),
	}
	p.ctx, p.cancel = context.WithCancel(s.Ctx)
	return p
}

// send asks a node on behalf of the place.
func (p *place) send(node int, c command) {
	c.key, c.owner = p.r.Key, p.r.Owner
	p.mu.Lock()
	p.pending++
	p.mu.Unlock()
	p.s.ask(p.ctx, node, p.bound, []command{c}, func(rs []reply) { p.deliver(event{node, c.op, c.ticket, rs[0]}) })
}

func (p *place) deliver(e event) {
	p.mu.Lock()
	p.pending--
	left := p.left
	switch {
	case !left:
		p.events <- e
	case p.pending == 0:
		p.cancel()
	}
	p.mu.Unlock()
	if left {
		p.late(&e)
	}
}

// late takes a reply that has come when Acquire had returned.
func (p *place) late(e *event) {
	if e.op != opVote {
		return
	}
	if e.doubtful() {
		p.suspect(e.node)
	}
	switch {
	case e.err != nil || e.status != statusGranted && e.ticket == 0:
	case p.token != 0 && p.s.claims.holds(p.r.Owner):
		p.join(e.node)
	default:
		// The node has executed the request after the owner's end, if that had come.
		p.s.cleaners[e.node].owe(p.r.ID, 0, p.r.TTL, false)
	}
}

// suspect sees to it that the owner ends at a node which may execute a request late.
func (p *place) suspect(node int) {
	if !p.s.claims.suspect(p.r.Owner, node) {
		p.s.cleaners[node].owe(p.r.ID, 0, p.r.TTL, true)
	}
}

// join tells a node that did not take part in the grant that the lease is there: it
// gives its vote if it can, and forgets the place in its queue. Nobody counts on it.
func (p *place) join(node int) {
	p.s.ask(p.s.Ctx, node, p.bound, []command{{
		op: opAccept, key: p.r.Key, owner: p.r.Owner, channel: p.s.channel, ttl: p.r.TTL, token: p.token, create: true,
	}}, func(rs []reply) {
		if rs[0].doubtful() {
			p.suspect(node)
		}
	})
}

// nudge has a node asked again at once.
func (p *place) nudge(node int) {
	p.mu.Lock()
	p.nudged[node] = true
	p.mu.Unlock()
	p.wake.Set()
}

// vote asks a node for its vote and, with a ticket, for a place in its queue.
func (p *place) vote(node int) {
	d := &p.sides[node]
	c := command{
		op: opVote, channel: p.s.channel, ttl: p.r.TTL, place: p.length, ticket: p.ticket, wait: p.r.Wait, rest: p.s.d.restartDelay,
	}
	if p.r.Replace != nil && !d.oldEnded {
		c.old = &p.r.Replace.Owner
	}
	d.asking, d.again, d.known = true, false, true
	p.send(node, c)
}

// take notes the reply to a vote, or to one given back.
func (p *place) take(e *event) {
	d := &p.sides[e.node]
	d.asking = false
	d.doubt = d.doubt || e.doubtful()
	now := time.Now()
	if e.op == opYield {
		if d.again {
			d.next = now
		}
		return
	}
	d.answered, d.err = false, e.err
	if e.err != nil {
		d.known = d.voted || d.queued || d.doubt
		d.fails++
		d.next = now.Add(p.jittered(min(50*time.Millisecond<<min(d.fails, 5), p.refresh())))
		return
	}
	d.oldEnded, d.fails, d.last, d.acked = true, 0, e.answer, e.sent
	d.next = now.Add(p.jittered(p.refresh()))
	p.rtt = max(p.rtt, min(now.Sub(e.sent), p.bound))
	switch e.status {
	case statusGranted:
		d.voted, d.sent = true, e.sent
	case statusOut:
		d.voted, d.err = false, errOut
		return
	default:
		d.voted = false
	}
	d.answered = true
	d.queued = d.queued || e.ticket != 0 && e.status != statusOver
	d.known = d.voted || d.queued || d.doubt
	if e.first && !d.voted && e.left > 0 {
		// The first in the queue asks when the present vote has expired.
		d.next = earlier(d.next, now.Add(e.left+time.Millisecond))
	}
	if d.again {
		d.next = now
	}
}

// refresh is how often a place is refreshed: three times before it lapses.
func (p *place) refresh() time.Duration { return p.length * 3 / 10 }

// jittered is d, more or less by a fifteenth.
func (p *place) jittered(d time.Duration) time.Duration {
	return time.Duration((14 + 2*p.s.d.jitter()) / 15 * float64(d))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// count returns how many nodes are so.
func (p *place) count(is func(*side) bool) int {
	n := 0
	for i := range p.sides {
		if is(&p.sides[i]) {
			n++
		}
	}
	return n
}

func (d *side) hasVoted() bool    { return d.voted }
func (d *side) isAsked() bool     { return d.asking }
func (d *side) hasAnswered() bool { return d.answered }
func (d *side) isQueued() bool    { return d.queued }
func (d *side) hasAccepted() bool { return d.accepted }
func (d *side) isOver() bool      { return d.answered && d.last.status == statusOver }
func (d *side) isFirm() bool      { return d.answered && !d.voted && d.last.firm }

// yield gives back votes that are too few, so that another can have them.
func (p *place) yield(again time.Time) {
	for i := range p.sides {
		if d := &p.sides[i]; d.voted {
			d.voted, d.next = false, again
			d.asking, d.again = true, false
			p.send(i, command{op: opYield})
		}
	}
	p.since = time.Time{}
	p.splits++
}

// await returns the next reply, or why there will be none.
func (p *place) await(ctx context.Context) (event, error) {
	select {
	case e := <-p.events:
		return e, nil
	case <-ctx.Done():
		return event{}, ctx.Err()
	case <-p.s.Closing:
		return event{}, driver.ErrClosed
	}
}

// unreachable is the error of a place that too few nodes answer.
func (p *place) unreachable() error {
	var errs []error
	for i := range p.sides {
		if d := &p.sides[i]; !d.answered && d.err != nil {
			errs = append(errs, d.err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, &kit.SilenceError{After: p.bound})
	}
	return noMajority(len(p.sides), p.count((*side).hasAnswered), errs)
}

// retryAfter is when enough nodes are free again unless votes are renewed.
func (p *place) retryAfter() time.Duration {
	var left []time.Duration
	for i := range p.sides {
		if d := &p.sides[i]; d.answered && !d.voted {
			left = append(left, d.last.left)
		}
	}
	slices.Sort(left)
	need := p.s.quorum - p.count((*side).hasVoted)
	if need < 1 || need > len(left) {
		return 0
	}
	return left[need-1]
}

// part has replies that come from here on taken by late, and those that nobody has taken.
func (p *place) part(g *driver.Grant, err error) {
	p.mu.Lock()
	p.left = true
	if err == nil {
		p.token = g.Token
	}
	if err != nil || p.pending == 0 {
		p.cancel() // what has not been sent need not be
	}
	p.mu.Unlock()
	for len(p.events) > 0 {
		e := <-p.events
		p.late(&e)
	}
}

// leave cleans up after an Acquire that returns err.
func (p *place) leave(g *driver.Grant, err error) {
	p.part(g, err)
	old, doubt := p.r.Replace, uint64(0)
	if old != nil {
		doubt = p.s.claims.forget(old.Owner)
	}
	for i := range p.sides {
		d, c := &p.sides[i], p.s.cleaners[i]
		if old != nil && (!d.oldEnded || in(doubt, i)) {
			c.owe(old.ID, 0, max(time.Until(old.Deadline), p.r.TTL), in(doubt, i))
		}
		switch {
		case err != nil && d.known:
			c.owe(p.r.ID, 0, p.r.TTL, d.doubt)
			continue
		case err == nil && !d.accepted && !d.asking && (d.voted || d.queued):
			p.join(i)
		}
		if d.doubt {
			p.suspect(i)
		}
	}
	if err != nil {
		p.s.claims.forget(p.r.Owner)
	}
}

// check refuses what an engine refuses when it compiles a policy.
func check(r *driver.Request) error {
	switch {
	case r.Mode != driver.Exclusive:
		return &driver.PermanentError{Err: errors.New("redlock: mode " + r.Mode.String() + " is not offered; use exclusive, or another driver")}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: errors.New("redlock: a TTL of " + r.TTL.String() + " is too short; use at least " + minTTL.String())}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("redlock: the lease to replace is of another key")}
	}
	return nil
}
