package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// patience bounds how long a batch may take that somebody waits for who cannot be
	// interrupted. Before it left he may have waited as long for another one.
	patience = driver.Promptness / 2

	// A server is expected to answer at once if it has last taken no longer than
	// quickTime, and that was no longer ago than quickFor; while another call waits for
	// it, no longer than patience.
	quickTime = driver.Promptness / 5
	quickFor  = time.Second

	// A server is near if the fastest answer of the last nearFor took no longer than
	// nearTime. What a request costs there is processor time, and as one of a batch a
	// fraction of that. So nearAlone send themselves at a time while fewer than a crowd have
	// sent something. The others wait for a batch, of nearBatch at least if there is one
	// under way.
	nearTime  = 200 * time.Microsecond
	nearFor   = time.Second
	nearAlone = 4
	nearBatch = 4
	crowd     = 20

	// A server that is farther may have a request, or a batch, leave every spacing, each on
	// a connection, so that nobody waits long for another's answer.
	spacing = 50 * time.Microsecond
)

// isQuick reports whether the server is expected to answer at once.
func (l *lane) isQuick(now time.Time) bool {
	quick := l.quick.Load()
	since := now.Sub(l.born) - time.Duration(quick)
	switch {
	case quick == 0 || since > quickFor:
		return false
	case since <= patience:
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active+l.alone == 0
}

// heard notes how quickly the server has answered.
func (l *lane) heard(sent, now time.Time, replies []reply) {
	answered := now.Sub(sent) <= quickTime
	for i := range replies {
		answered = answered && (replies[i].err == nil || isReply(replies[i].err))
	}
	if !answered {
		l.quick.Store(0)
		return
	}
	l.quick.Store(int64(now.Sub(l.born)))
}

// timed notes how long an answer took. l.mu is held.
func (l *lane) timed(sent, now time.Time) {
	if took := now.Sub(sent); took < l.trip || now.Sub(l.tripAt) > nearFor {
		l.trip, l.tripAt = took, now
	}
}

// near reports whether the server is. l.mu is held.
func (l *lane) near() bool { return l.trip <= nearTime && !l.tripAt.IsZero() }

// room is how many requests, or batches, may be under way at once to a server that is not
// near. l.mu is held.
func (l *lane) room() int { return max(l.width, min(int(l.trip/spacing), l.most)) }

// far reports whether the server is known not to be near. l.mu is held.
func (l *lane) far() bool { return l.trip > nearTime && !l.tripAt.IsZero() }

// mayBatch reports whether one more batch may be under way. l.mu is held.
func (l *lane) mayBatch() bool {
	if l.far() {
		return l.active+l.alone < l.room()
	}
	return l.active < l.width
}

// mayGoAlone reports whether one more may send itself. l.mu is held.
func (l *lane) mayGoAlone() bool {
	switch {
	case len(l.queue) > l.gone:
		return false
	case l.near():
		return l.alone < nearAlone && l.alone+l.carried < crowd
	default:
		return l.active+l.alone < l.room()
	}
}

// next starts a worker for those who wait, if one is due. l.mu is held.
func (l *lane) next() {
	if l.active == l.silent || len(l.queue)-l.gone >= nearBatch || !l.near() {
		l.spawn()
	}
}

// exchange sends a call and waits for its reply on a goroutine that cannot be
// interrupted, for driver.Promptness at most: then the reply is an error. While they
// are few, senders send themselves, each on a connection: to wake another goroutine for
// the call, and this one for the reply, takes longer than a local server does. Others join
// the next batch.
//
// After a reply that is no error nobody knows of the call any more.
func (l *lane) exchange(c *call, now time.Time) {
	c.lane = l
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		c.reply = reply{err: driver.ErrClosed, once: true}
	case l.mayGoAlone():
		l.alone++
		ctx := l.going.at(l.ctx, now)
		l.mu.Unlock()
		l.straight(ctx, c, now)
	case l.silent > 0 && l.silent == l.active && !l.mayBatch():
		l.mu.Unlock()
		c.reply = reply{err: silence(patience), once: true}
	default:
		if c.replied == nil {
			c.replied = make(chan struct{}, 1)
		}
		c.queued = true
		l.queue = append(l.queue, c)
		l.next()
		l.mu.Unlock()
		<-c.replied
	}
}

// spell is a context of calls that begin at about the same time, for patience from the
// first; the last of them have half of it. One for each call, or for those of a few
// milliseconds, would cost a tenth or more of what a near server and its client take for
// them: whoever starts a timer that ends before all others wakes a thread to wait for it,
// which then has the processor that the server was to answer on.
type spell struct {
	ctx   context.Context
	began time.Time
	over  context.CancelFunc
}

// at returns the context of a call that begins now.
func (s *spell) at(parent context.Context, now time.Time) context.Context {
	if s.ctx == nil || now.Sub(s.began) > patience/2 {
		// Calls may have the one before until it ends by itself.
		s.ctx, s.over = context.WithDeadline(parent, now.Add(patience))
		s.began = now
	}
	return s.ctx
}

// end ends the last of its contexts.
func (s *spell) end() {
	if s.over != nil {
		s.over()
	}
}

// straight sends a call alone.
func (l *lane) straight(ctx context.Context, c *call, now time.Time) {
	b := batches.Get().(*batch)
	b.add(c)
	l.wire.run(ctx, b.cmds, b.replies)
	r := b.replies[len(b.replies)-1]
	overdue := r.err != nil && ctx.Err() != nil
	c.sent, c.reply = now, r
	after := time.Now()
	l.heard(now, after, b.replies)
	b.free()
	if overdue {
		l.giveUp(nil)
	}
	l.mu.Lock()
	l.alone--
	l.timed(now, after)
	l.next()
	l.mu.Unlock()
}

// mindSilence notes whether a worker's batch has been given up, so that nobody who cannot
// be interrupted waits behind it. l.mu is held.
func (l *lane) mindSilence(b *batch, silent bool) {
	if b.silent == silent {
		return
	}
	if b.silent = silent; silent {
		l.silent++
	} else {
		l.silent--
	}
}

// giveUp ends the waiting of those who cannot be interrupted, in a batch that is
// overdue and in the queue behind it.
func (l *lane) giveUp(b *batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b != nil {
		if b.back {
			return
		}
		l.mindSilence(b, !b.replaced)
		for _, c := range b.calls {
			if c.done == nil {
				c.answer(time.Time{}, reply{err: silence(patience)})
			}
		}
	}
	for _, c := range l.queue {
		if c.queued && c.done == nil {
			c.queued = false
			l.gone++
			c.answer(time.Time{}, reply{err: silence(patience), once: true})
		}
	}
	l.tripAt = time.Time{} // who is silent is not near
}
