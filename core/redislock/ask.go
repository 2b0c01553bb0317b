package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// askTwice is ask, and repeats the commands that were denied with a misrouted reply. A
// second denial is accepted, which is safe: it only gives up a lease.
func (s *session) askTwice(ctx context.Context, l *lanes, cmds []command, denied func(value any) bool) []*call {
	calls := s.ask(ctx, l, cmds...)
	var again []command
	var at []int
	for i, c := range calls {
		if c.reply.misrouted && denied(c.reply.value) {
			again, at = append(again, cmds[i]), append(at, i)
		}
	}
	if len(again) > 0 {
		for j, c := range s.ask(ctx, l, again...) {
			c.reply.sentOnce = false // the first was sent too
			calls[at[j]] = c
		}
	}
	return calls
}

// ask sends commands on lanes and waits for their replies until ctx ends, and for one
// attempt's timeout at most. It returns one call for each command. The reply is an error if
// there is no answer.
func (s *session) ask(ctx context.Context, l *lanes, cmds ...command) []*call {
	type answer struct {
		i int
		c *call
	}
	answers := make(chan answer, 2*len(cmds))
	calls := make([]*call, len(cmds))
	prepare := func(i int) *call {
		c := &call{command: cmds[i]}
		c.done = func(*call) { answers <- answer{i, c} }
		calls[i] = c
		return c
	}
	for i := range cmds {
		prepare(i)
	}
	limit := time.NewTimer(s.timeout)
	defer limit.Stop()
	var reconnected <-chan struct{}
	if l == s.renewals {
		reconnected = s.listener.reconnected() // before they are sent
	}
	l.send(calls...)

	answered := make([]bool, len(cmds))
	var err error
	for left := len(cmds); left > 0 && err == nil; {
		select {
		case a := <-answers:
			if !answered[a.i] {
				answered[a.i], calls[a.i] = true, a.c
				left--
			}
		case <-reconnected:
			// The calls under way may have gone to a server that was replaced. They are
			// sent again, and the first answer counts.
			reconnected = nil
			var again []*call
			for i, c := range calls {
				if !answered[i] {
					c.withdraw()
					again = append(again, prepare(i))
				}
			}
			l.send(again...)
		case <-ctx.Done():
			err = ctx.Err()
		case <-limit.C:
			err = silence(s.timeout)
		case <-s.Closing:
			err = driver.ErrClosed
		}
	}
	for i, c := range calls {
		if !answered[i] {
			never := c.withdraw()
			calls[i] = &call{command: c.command, reply: reply{err: err, sentOnce: never}}
		}
	}
	return calls
}
