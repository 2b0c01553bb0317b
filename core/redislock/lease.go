package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.Leave()
	for i, c := range s.sendRenewals(ctx, rs...) {
		r, err := s.renewed(rs[i], c)
		if err != nil {
			out[i].Err = err
			continue
		}
		out[i] = driver.Renewed{Deadline: driver.Deadline(c.sent, rs[i].TTL), Contended: r.Waiting > 0}
		s.claims.extend(rs[i].Owner, out[i].Deadline)
	}
	return out
}

// sendRenewals sends renewals and waits for the replies.
func (s *session) sendRenewals(ctx context.Context, rs ...driver.Renewal) []*call {
	cmds := make([]command, len(rs))
	for i, r := range rs {
		cmds[i] = renewCommand(s.name(r.Key), r)
	}
	return s.askTwice(ctx, s.renewals, cmds, func(value any) bool {
		r, err := protocol.ParseRenew(value)
		return err == nil && r.Status == protocol.Lost
	})
}

// renew extends one lease. It returns the reply and when the request was sent.
func (s *session) renew(ctx context.Context, r driver.Renewal) (protocol.RenewReply, time.Time, error) {
	c := s.sendRenewals(ctx, r)[0]
	reply, err := s.renewed(r, c)
	return reply, c.sent, err
}

func (s *session) renewed(r driver.Renewal, c *call) (protocol.RenewReply, error) {
	if isOverwritten(c.reply.err) {
		s.claims.forget(r.Owner)
		return protocol.RenewReply{}, driver.ErrNotHeld
	}
	if c.reply.err != nil {
		return protocol.RenewReply{}, c.reply.err
	}
	reply, err := protocol.ParseRenew(c.reply.value)
	if err != nil {
		return reply, classify(err)
	}
	if reply.Status == protocol.Lost {
		// A late copy of the owner's acquisition must not bring it back.
		if s.claims.copied(r.Owner) {
			s.cleaner.owe(s.name(r.Key), protocol.EndArgs{Owner: r.Owner, Bury: true}, r.TTL, 0)
		}
		s.claims.forget(r.Owner)
		return reply, driver.ErrNotHeld
	}
	return reply, c.reply.given()
}

// Release ends leases.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	out := make([]error, len(rs))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.Leave()
	cmds := make([]command, len(rs))
	known := make([]released, len(rs))
	taken := make([]protocol.TakeArgs, len(rs))
	now := time.Now()
	for i, r := range rs {
		known[i] = s.claims.releaseAsked(r.Owner, now)
		cmds[i] = endCommand(s.name(r.Key), known[i].ending(r))
		cmds[i].value, cmds[i].written = s.plain(r, known[i], &taken[i]), r.Written
	}
	for i, c := range s.askTwice(ctx, s.calls, cmds, denied) {
		out[i] = s.released(rs[i], known[i], c)
	}
	return out
}

// End sends the release of one lease. If done is false, the engine calls Release for it.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	if s.Enter() != nil {
		return false, nil
	}
	defer s.Leave()
	key := s.name(e.Key)
	l := s.calls.quickLane(key, now)
	if l == nil {
		return false, nil
	}
	known := s.claims.releaseAsked(e.Owner, now)
	end := s.newEnding(key, known.ending(e))
	end.value, end.written = s.plain(e, known, &end.taken), e.Written
	l.exchange(&end.call, now)
	if end.reply.err != nil || end.reply.misrouted && denied(end.reply.value) {
		return false, nil
	}
	err = s.released(e, known, &end.call)
	s.endings.Put(end)
	return true, err
}

// ending is the call of End, with memory for its arguments.
type ending struct {
	call
	args  protocol.EndArgs
	taken protocol.TakeArgs // how its key was taken
	room  [3]any            // for the arguments
}

func (s *session) newEnding(key string, a protocol.EndArgs) *ending {
	end, ok := s.endings.Get().(*ending)
	if !ok {
		end = new(ending)
	}
	*end = ending{call: call{replied: end.replied}, args: a}
	end.command = command{script: &protocol.End, key: key, args: end.args.Append(end.room[:0])}
	return end
}

// ending returns what ends a lease.
func (r released) ending(e driver.Ending) protocol.EndArgs {
	return protocol.EndArgs{Owner: e.Owner, Bury: r.copies, Keep: e.Keep}
}

// plain returns how the key was taken, in room, if its end is all that the release is for.
func (s *session) plain(e driver.Ending, known released, room *protocol.TakeArgs) *protocol.TakeArgs {
	if e.Keep > 0 || known.taken == 0 {
		return nil
	}
	*room = protocol.TakeArgs{Owner: e.Owner, Channel: s.channel, Length: known.taken, Trace: known.trace}
	return room
}

// released returns the result of a release from the reply to it.
func (s *session) released(e driver.Ending, known released, c *call) error {
	owe := func() {
		s.cleaner.owe(c.key, known.ending(e), max(time.Until(e.Deadline), 0)+driver.Margin(time.Second), 0)
	}
	err := c.reply.err
	if isOverwritten(err) {
		s.claims.forget(e.Owner)
		return driver.ErrNotHeld
	}
	var r protocol.EndReply
	if err == nil {
		r, err = protocol.ParseEnd(c.reply.value)
		err = classify(err)
	}
	if err != nil {
		// The request may have been executed or not. The cleaner repeats it.
		owe()
		return err
	}
	if r.More {
		owe()
	}
	again := s.claims.releasedTwice(e.Owner)
	s.claims.forget(e.Owner)
	if r.Status == protocol.Ended {
		s.busy.noteIf(r.Waiting > 0, c.key, c.sent)
		return nil
	}
	// If the release was asked for before the deadline, an earlier copy of the request may have ended
	// the lease, if there was one, unless the lease was ousted. Without a copy the lease is lost.
	if (again || !c.reply.sentOnce) && r.Ousted < e.Token && driver.Remaining(e.Deadline, known.asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}

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
