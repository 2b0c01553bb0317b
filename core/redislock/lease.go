package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func endCommand(key string, a protocol.EndArgs) command {
	return command{script: &protocol.End, key: key, args: a.Args()}
}

func renewCommand(r driver.Renewal) command {
	return command{
		script: &protocol.Renew,
		key:    protocol.Key(r.Key),
		args:   protocol.RenewArgs{Owner: r.Owner, TTL: r.TTL, Share: r.Share}.Args(),
	}
}

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
	for i, c := range s.askForMore(ctx, rs...) {
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

// askForMore sends renewals.
func (s *session) askForMore(ctx context.Context, rs ...driver.Renewal) []*call {
	cmds := make([]command, len(rs))
	for i, r := range rs {
		cmds[i] = renewCommand(r)
	}
	return s.askTwice(ctx, s.renewals, cmds, func(value any) bool {
		r, err := protocol.ParseRenew(value)
		return err == nil && r.Status == protocol.Lost
	})
}

// renew extends one lease and returns what was answered and when it was asked.
func (s *session) renew(ctx context.Context, r driver.Renewal) (protocol.RenewReply, time.Time, error) {
	c := s.askForMore(ctx, r)[0]
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
		s.claims.forget(r.Owner)
		s.cleaner.owe(protocol.Key(r.Key), r.Owner, 0, r.TTL, 0)
		return reply, driver.ErrNotHeld
	}
	return reply, nil
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
	asked := make([]time.Time, len(rs))
	now := time.Now()
	for i, r := range rs {
		cmds[i] = endCommand(protocol.Key(r.Key), protocol.EndArgs{Owner: r.Owner, Keep: r.Keep})
		asked[i] = s.claims.release(r.Owner, now)
	}
	for i, c := range s.askTwice(ctx, s.calls, cmds, denied) {
		out[i] = s.released(rs[i], asked[i], c)
	}
	return out
}

// denied reports whether the reply to an ending says that the owner had nothing.
func denied(value any) bool {
	r, err := protocol.ParseEnd(value)
	return err == nil && (r.Status == protocol.NotMine || r.Status == protocol.Absent)
}

// released judges the answer to an ending that was first asked for at the time
// asked.
func (s *session) released(e driver.Ending, asked time.Time, c *call) error {
	owe := func() {
		s.cleaner.owe(c.key, e.Owner, e.Keep, max(time.Until(e.Deadline), 0)+driver.Margin(time.Second), 0)
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
		// The owner is over for this process whatever became of the request.
		owe()
		return err
	}
	if r.More {
		owe()
	}
	s.claims.forget(e.Owner)
	if r.Status == protocol.Ended {
		return nil
	}
	// Asked for in time, and the key's latest grant is this one or a later one:
	// an earlier copy of this request has ended the lease, if nobody else has
	// taken it. Without that grant the server has lost its data, and the lease
	// with it.
	if r.Status == protocol.NotMine && r.Token >= e.Token && r.Ousted < e.Token && driver.Remaining(e.Deadline, asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}
