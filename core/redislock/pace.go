package redislock

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
