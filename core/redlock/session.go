package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's connection to the nodes.
type session struct {
	sink         driver.Sink
	timeout      time.Duration // of one attempt to reach the store
	nodeTimeout  time.Duration // of WithNodeTimeout
	restartDelay time.Duration // of WithRestartDelay
	jitter       func() float64
	clock        func() int64 // of the nodes; 0: not known
	nodes        []wire
	health       *health // of the nodes
	quorum       int
	channel      string // of this session's pushes

	claims     claims
	lanes      []*lane    // one for each node
	renewals   []*lane    // for renewals alone, which a burst of acquisitions must not delay
	cleaners   []*cleaner // one for each node
	listenOnce sync.Once

	*kit.Life
	stopGauge func()         // removes the session from the gauge, once
	sending   sync.WaitGroup // the calls of all lanes, and their goroutines
}

// minTTL leaves room for two rounds of messages to the nodes.
const minTTL = 100 * time.Millisecond

// bound is how long one attempt to reach a node may take for a lease of ttl: a quarter of
// the TTL, or up to half of a short one, since a connection may have to be made.
func (s *session) bound(ttl time.Duration) time.Duration {
	b := min(s.timeout, max(ttl/4, min(ttl/2, 500*time.Millisecond)))
	if s.nodeTimeout > 0 {
		b = min(b, s.nodeTimeout)
	}
	return b
}

// ask sends commands to a node and calls done once, on another goroutine: with the
// replies, with a kit.SilenceError when the bound has passed, or with the error of ctx if it
// ended before they were sent. done must not block. The end of one lease is sent
// after the answer to its vote, if that comes soon.
func (s *session) ask(ctx context.Context, node int, bound time.Duration, cmds []command, done func([]reply)) {
	l := s.lanes[node]
	if cmds[0].op == opRenew {
		l = s.renewals[node]
	}
	send := func() {
		l.enqueue(ctx, bound, cmds, func(rs []reply) {
			if !errors.Is(rs[0].err, context.Canceled) { // the caller gave up; it says nothing about the node
				s.health.noteReply(node, cmds[0].op, &rs[0], bound)
			}
			done(rs)
		})
	}
	if cmds[0].op != opEnd || len(cmds) > 1 || !s.claims.afterVote(node, cmds[0].owner, send) {
		send()
	}
}

// nodeReplies are the replies of one node.
type nodeReplies struct {
	node    int
	replies []reply
}

// askAll sends the commands to all nodes at once, each for at most bound, and
// calls onReplies for each node until it returns true or all nodes have replied. Later
// replies go to onLate, on other goroutines. It returns an error if the caller or the
// session ended before.
func (s *session) askAll(ctx context.Context, bound time.Duration, cmds []command, onReplies func(nodeReplies) (enough bool), onLate func(nodeReplies)) error {
	var mu sync.Mutex
	stopped := false
	in := make(chan nodeReplies, len(s.nodes))
	for i := range s.nodes {
		s.ask(s.Ctx, i, bound, cmds, func(rs []reply) {
			b := nodeReplies{i, rs}
			mu.Lock()
			defer mu.Unlock()
			if !stopped {
				in <- b
			} else if onLate != nil {
				onLate(b)
			}
		})
	}
	var err error
	for n, enough := 0, false; n < len(s.nodes) && !enough && err == nil; {
		select {
		case b := <-in:
			enough = onReplies(b)
			n++
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.Closing:
			err = driver.ErrClosed
		}
	}
	mu.Lock()
	defer mu.Unlock()
	stopped = true
	for onLate != nil && len(in) > 0 {
		onLate(<-in)
	}
	return err
}

// Close ends the session. A minority of nodes that do not answer does not hold it up.
func (s *session) Close(ctx context.Context) error {
	s.stopGauge()
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		// A node that is down for good must not hold up a program's end.
		ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
		defer cancel()
		s.awaitReplies(ctx)
		return s.awaitEnds(ctx)
	}, s.sending.Wait)
}

// closeGrace is how long Close waits for replies to requests whose callers have returned,
// and how long it waits for the other nodes when a majority has confirmed every end, so that
// every key is free.
const closeGrace = 300 * time.Millisecond

// awaitReplies waits for the replies to requests on their way, which may have to be undone.
func (s *session) awaitReplies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	idle := make(chan struct{})
	go func() {
		s.sending.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// awaitEnds waits until the nodes have confirmed every end that they are owed, and reports
// whether a majority has.
func (s *session) awaitEnds(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	var draining sync.WaitGroup
	defer draining.Wait()
	defer cancel()
	results := make(chan bool, len(s.cleaners))
	for _, c := range s.cleaners {
		draining.Go(func() { results <- c.owed.Drain(ctx) })
	}
	confirmed := 0
	grace := time.NewTimer(time.Hour)
	defer grace.Stop()
	for range s.cleaners {
		select {
		case ok := <-results:
			if !ok {
				continue
			}
			if confirmed++; confirmed == s.quorum {
				grace.Reset(closeGrace)
			}
		case <-grace.C:
			return true
		}
	}
	return confirmed >= s.quorum
}
