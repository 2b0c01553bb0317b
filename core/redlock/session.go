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
	d       *Driver
	sink    driver.Sink
	timeout time.Duration // of one attempt to reach the store
	nodes   []wire
	quorum  int
	channel string // of this session's pushes

	claims   claims
	lanes    []*lane    // one for each node
	renewals []*lane    // apart, so that a burst of acquisitions cannot starve them
	cleaners []*cleaner // one for each node
	listen   sync.Once

	*kit.Life
	unmeasure func()         // ends the session's part in the gauge, once
	sending   sync.WaitGroup // what the lanes were given, and their goroutines
}

func newSession(d *Driver, c driver.Config, ws []wire) *session {
	s := &session{
		d:       d,
		sink:    c.Sink,
		timeout: c.StoreTimeout,
		nodes:   ws,
		quorum:  majority(len(ws)),
		channel: randomChannel(),
		Life:    kit.NewLife("redlock", "a majority of nodes"),
	}
	s.unmeasure = sync.OnceFunc(d.gauge.stop)
	s.claims.all = make(map[driver.Owner]*claim)
	for i, w := range ws {
		s.lanes = append(s.lanes, &lane{wire: w, ctx: s.Ctx, workers: &s.sending})
		s.renewals = append(s.renewals, &lane{wire: w, ctx: s.Ctx, workers: &s.sending})
		s.cleaners = append(s.cleaners, newCleaner(s, i))
	}
	return s
}

// bound is how long one attempt to reach a node may take, for a lease of ttl: a quarter
// of it. Of a short one it is more, up to half, since nodes may have to be connected to.
func (s *session) bound(ttl time.Duration) time.Duration {
	b := min(s.timeout, max(ttl/4, min(ttl/2, 500*time.Millisecond)))
	if s.d.nodeTimeout > 0 {
		b = min(b, s.d.nodeTimeout)
	}
	return b
}

// ask sends commands to a node and calls done once, on another goroutine: with the
// replies, with silence when the bound has passed, or with the error of ctx if that has
// ended before they were sent. Done does not block.
func (s *session) ask(ctx context.Context, node int, bound time.Duration, cmds []command, done func([]reply)) {
	l := s.lanes[node]
	if cmds[0].op == opRenew {
		l = s.renewals[node]
	}
	l.send(ctx, bound, cmds, func(rs []reply) {
		if !errors.Is(rs[0].err, context.Canceled) { // the caller's change of mind
			s.d.health.note(node, &rs[0], bound)
		}
		done(rs)
	})
}

// batch is what one node has replied.
type batch struct {
	node    int
	replies []reply
}

// everywhere sends the commands to all nodes at once, each for at most bound, and
// calls take with each node's replies until that says that it has enough or all have
// come. What comes later goes to late, on other goroutines. An error is the reason for
// having stopped before.
func (s *session) everywhere(ctx context.Context, bound time.Duration, cmds []command, take func(batch) (enough bool), late func(batch)) error {
	var mu sync.Mutex
	over := false
	in := make(chan batch, len(s.nodes))
	for i := range s.nodes {
		s.ask(s.Ctx, i, bound, cmds, func(rs []reply) {
			b := batch{i, rs}
			mu.Lock()
			defer mu.Unlock()
			if !over {
				in <- b
			} else if late != nil {
				late(b)
			}
		})
	}
	var err error
	for n, enough := 0, false; n < len(s.nodes) && !enough && err == nil; {
		select {
		case b := <-in:
			enough = take(b)
			n++
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.Closing:
			err = driver.ErrClosed
		}
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	for late != nil && len(in) > 0 {
		late(<-in)
	}
	return err
}

// closeGrace is how long the session's end waits for replies to requests whose callers have
// left, and for the other nodes when a majority has confirmed the end of all that was given
// up, with which every key is free.
const closeGrace = 300 * time.Millisecond

// settle waits for the replies to what is still on its way, which may have to be undone.
func (s *session) settle(ctx context.Context) {
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

// drain waits until the nodes have confirmed the end of all that was given up, and reports
// whether a majority has.
func (s *session) drain(ctx context.Context) bool {
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

// Close ends the session. A minority of nodes that do not answer does not hold it up.
func (s *session) Close(ctx context.Context) error {
	s.unmeasure()
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		// A node that is down for good must not hold up a program's end.
		ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
		defer cancel()
		s.settle(ctx)
		return s.drain(ctx)
	}, s.sending.Wait)
}
