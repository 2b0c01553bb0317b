package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// exchange sends a call and waits for its reply. The caller's goroutine cannot be interrupted
// meanwhile. So after driver.Promptness at most exchange returns, with an error as the reply if
// there is no answer.
//
// While there are few callers, each sends its call alone, on a connection of its own. To
// wake a worker for the call and the caller for the reply would take longer than a local
// server needs. The other callers join the next batch.
//
// After a reply without an error the caller may reuse the call.
func (l *lane) exchange(c *call, now time.Time) {
	c.lane = l
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		c.reply = reply{err: driver.ErrClosed, sentOnce: true}
	case l.maySendAlone():
		l.sendingAlone++
		ctx := l.deadline.at(l.ctx, now)
		l.mu.Unlock()
		l.sendAlone(ctx, now, c)
	case l.silent > 0 && l.silent == l.active && !l.mayBatch():
		l.mu.Unlock()
		c.reply = reply{err: silence(patience), sentOnce: true}
	default:
		if c.replied == nil {
			c.replied = make(chan struct{}, 1)
		}
		c.queued = true
		l.queue = append(l.queue, c)
		l.spawnIfDue()
		l.mu.Unlock()
		<-c.replied
	}
}

// exchangeAll is exchange for several calls of one caller, which share a batch.
func (l *lane) exchangeAll(calls []*call, now time.Time) {
	l.mu.Lock()
	if !l.closed && l.maySendAlone() {
		l.sendingAlone++
		ctx := l.deadline.at(l.ctx, now)
		l.mu.Unlock()
		l.sendAlone(ctx, now, calls...)
		return
	}
	err := error(nil)
	switch {
	case l.closed:
		err = driver.ErrClosed
	case l.silent > 0 && l.silent == l.active && !l.mayBatch():
		err = silence(patience)
	default:
		for _, c := range calls {
			c.replied, c.queued = make(chan struct{}, 1), true
		}
		l.queue = append(l.queue, calls...)
		l.spawnIfDue()
	}
	l.mu.Unlock()
	for _, c := range calls {
		if err != nil {
			c.reply = reply{err: err, sentOnce: true}
		} else {
			<-c.replied
		}
	}
}

// sendAlone sends calls on the goroutine of their caller.
func (l *lane) sendAlone(ctx context.Context, now time.Time, calls ...*call) {
	b := batches.Get().(*batch)
	for _, c := range calls {
		b.add(c)
	}
	l.wire.run(ctx, b.cmds, b.replies)
	overdue := false
	for i, c := range b.calls {
		c.sent, c.reply = now, b.replies[i]
		overdue = c.reply.err != nil && ctx.Err() != nil
	}
	after := time.Now()
	l.noteQuickness(now, after, b.replies)
	b.free()
	if overdue {
		l.giveUp(nil)
	}
	l.mu.Lock()
	l.sendingAlone--
	l.noteRoundTrip(now, after)
	l.spawnIfDue()
	l.mu.Unlock()
}

// spawnIfDue starts a worker for the queued calls if they need not wait for a larger batch.
// l.mu is held.
func (l *lane) spawnIfDue() {
	if l.active == l.silent || len(l.queue)-l.withdrawnCalls >= nearBatch || !l.near() {
		l.spawn()
	}
}

const (
	// A server is quick if its last answer took at most quickTime and came at most quickFor
	// ago, or at most patience ago while other calls are under way. A quick server is
	// expected to answer at once.
	quickTime = driver.Promptness / 5
	quickFor  = time.Second

	// A server is near if the fastest answer of the last nearFor took at most nearTime. A
	// request to it costs processor time, and in a batch a fraction of that. So at most
	// nearAlone callers at a time send their calls alone, and none if a crowd of calls is
	// under way. The others wait for a batch; while one is under way, the next has at least
	// nearBatch calls.
	nearTime  = 200 * time.Microsecond
	nearFor   = time.Second
	nearAlone = 8
	nearBatch = 4
	crowd     = 20

	// For a server that is not near, a request or a batch may be sent every spacing, each on
	// a connection of its own, so that no call waits long for the answer to another.
	spacing = 50 * time.Microsecond
)

// isQuick reports whether the server is quick.
func (l *lane) isQuick(now time.Time) bool {
	quick := l.quickAt.Load()
	since := now.Sub(l.created) - time.Duration(quick)
	switch {
	case quick == 0 || since > quickFor:
		return false
	case since <= patience:
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active+l.sendingAlone == 0
}

// mayBatch reports whether one more batch may be under way. l.mu is held.
func (l *lane) mayBatch() bool {
	if l.far() {
		return l.active+l.sendingAlone < l.maxUnderWay()
	}
	return l.active < l.width
}

// maySendAlone reports whether one more caller may send its call alone. l.mu is held.
func (l *lane) maySendAlone() bool {
	switch {
	case len(l.queue) > l.withdrawnCalls:
		return false
	case l.near():
		return l.sendingAlone < nearAlone && l.sendingAlone+l.batched < crowd
	default:
		return l.active+l.sendingAlone < l.maxUnderWay()
	}
}

// maxUnderWay is how many requests and batches may be under way at once to a server that is
// not near. l.mu is held.
func (l *lane) maxUnderWay() int { return max(l.width, min(int(l.roundTrip/spacing), l.maxWidth)) }

// near reports whether the server is known to be near. l.mu is held.
func (l *lane) near() bool { return l.roundTrip <= nearTime && !l.roundTripAt.IsZero() }

// far reports whether the server is known not to be near. l.mu is held.
func (l *lane) far() bool { return l.roundTrip > nearTime && !l.roundTripAt.IsZero() }

// noteQuickness notes whether the server has answered quickly.
func (l *lane) noteQuickness(sent, now time.Time, replies []reply) {
	answered := now.Sub(sent) <= quickTime
	for i := range replies {
		answered = answered && (replies[i].err == nil || isReply(replies[i].err))
	}
	if !answered {
		l.quickAt.Store(0)
		return
	}
	l.quickAt.Store(int64(now.Sub(l.created)))
}

// noteRoundTrip notes how long an answer took. l.mu is held.
func (l *lane) noteRoundTrip(sent, now time.Time) {
	if took := now.Sub(sent); took < l.roundTrip || now.Sub(l.roundTripAt) > nearFor {
		l.roundTrip, l.roundTripAt = took, now
	}
}

// sharedDeadline is a context shared by calls that start within patience/2 of each other. It
// ends patience after the first of them started. A context for each call would cost a tenth
// or more of the call's time at a near server: a timer that ends before all others wakes a
// thread, which then takes the processor from the server.
type sharedDeadline struct {
	ctx   context.Context
	began time.Time
	over  context.CancelFunc
}

// patience bounds how long a batch may take while a caller in exchange waits for it. Before
// that, the caller may have waited as long for another batch.
const patience = driver.Promptness / 2

// at returns the context of a call that begins now.
func (s *sharedDeadline) at(parent context.Context, now time.Time) context.Context {
	if s.ctx == nil || now.Sub(s.began) > patience/2 {
		// Earlier calls may still use the old context, which ends by itself.
		s.ctx, s.over = context.WithDeadline(parent, now.Add(patience))
		s.began = now
	}
	return s.ctx
}

// end cancels the present context.
func (s *sharedDeadline) end() {
	if s.over != nil {
		s.over()
	}
}
