package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// WithReplicas makes a lease count only when n replicas of its master have it: WAIT goes out in the same write. If
// they do not have it within that time, the lease is given back, and the acquisition fails with
// core.ErrUnavailable, which says why. So does one whose key was handed over, for which the new holder asks in a
// round trip of its own. A renewal that they do not confirm fails, and the lease ends at its deadline unless a
// later one is confirmed.
//
// A failover to a replica that has confirmed loses no lease then. Another replica may still be promoted: with one
// replica there is none; with more, Sentinel and Cluster prefer the one that is the most up to date, and n that is
// all but one or more leaves few others. Give Redis min-replicas-to-write as well, so that a master that is cut
// off stops granting. Tokens protect the resource whatever happens.
//
// It costs the time to the replicas and back for each acquisition and renewal, and requests are sent by goroutines
// of the session. n is 1 or more; within is 1 ms or more and less than the engine's store time-out, and
// than the ReadTimeout of a Cluster's client. Ping fails if fewer replicas are connected. A user of an ACL needs
// +wait. redlock has no use for it.
func WithReplicas(n int, within time.Duration) Option {
	return optionFunc(func(c *config) { c.replicas = &confirmation{n, within} })
}

// confirmation is how many replicas are to have a lease, and when.
type confirmation struct {
	n      int
	within time.Duration
}

func (c *confirmation) check(timeout time.Duration) error {
	switch {
	case c == nil:
	case c.n < 1:
		return fmt.Errorf("WithReplicas(%d, %v); at least 1 is needed", c.n, c.within)
	case c.within < time.Millisecond || c.within >= timeout:
		return fmt.Errorf("WithReplicas(%d, %v); use 1ms or more, and less than the store time-out, %v", c.n, c.within, timeout)
	}
	return nil
}

// confirmBy has what is granted confirmed by replicas. WAIT may take longer than a user's time-out for a reply.
func (w *clientWire) confirmBy(c *confirmation, timeout time.Duration) error {
	if c == nil {
		return nil
	}
	w.replicas = c
	if own, ok := w.client.(*redis.Client); ok {
		own.Options().ReadTimeout = timeout // of the session's copy of the client
	}
	if w.cluster == nil {
		return nil
	}
	if t := w.cluster.Options().ReadTimeout; t > 0 && t <= c.within {
		return fmt.Errorf("WithReplicas(%d, %v), and the client's ReadTimeout is %v; make that longer", c.n, c.within, t)
	}
	return nil
}

// wait is the command that waits for the replicas.
func (c *confirmation) wait(ctx context.Context) *redis.Cmd {
	return redis.NewCmd(ctx, "wait", c.n, c.within.Milliseconds())
}

// judge returns why what was sent before WAIT is not confirmed, if it is not.
func (c *confirmation) judge(wait *redis.Cmd) error {
	got, err := wait.Int64()
	switch {
	case err != nil:
		return err
	case got < int64(c.n):
		return fmt.Errorf("redis: %d replicas had the lease within %v; WithReplicas wants %d", got, c.within, c.n)
	}
	return nil
}

// confirmable reports whether a part makes a lease, or lengthens one.
func (p part) confirmable() bool { return p.grants && !p.draws }

// exec sends commands that o has made of its pending parts in one pipeline, with WAIT behind them if it is asked
// for. It notes what was not confirmed.
func (w *clientWire) exec(ctx context.Context, o *outgoing) error {
	if w.replicas == nil || !slices.ContainsFunc(o.pending, func(i int) bool { return o.parts[i].confirmable() }) {
		return execute(ctx, w.client, o.sent)
	}
	if w.cluster == nil {
		wait := w.replicas.wait(ctx)
		err := execute(ctx, w.client, append(o.sent[:len(o.sent):len(o.sent)], wait))
		o.unconfirmed(o.pending, w.replicas.judge(wait))
		return err
	}
	return w.execEach(ctx, o)
}

// execEach does that at each master of a Cluster, whose client would send WAIT to any of them.
func (w *clientWire) execEach(ctx context.Context, o *outgoing) (err error) {
	masters := make(map[*redis.Client][]int) // indices of o.pending
	for j, i := range o.pending {
		key := o.parts[i].key
		if o.parts[i].draws {
			key = protocol.Stream(key)
		}
		master, failed := w.cluster.MasterForKey(ctx, key)
		if failed != nil {
			return failed
		}
		masters[master] = append(masters[master], j)
	}
	for master, all := range masters {
		var sent []*redis.Cmd
		var parts []int
		for _, j := range all {
			sent, parts = append(sent, o.sent[j]), append(parts, o.pending[j])
		}
		wait := w.replicas.wait(ctx)
		if failed := execute(ctx, master, append(sent, wait)); failed != nil {
			err = failed
		}
		o.unconfirmed(parts, w.replicas.judge(wait))
		for _, c := range sent {
			if redis.HasErrorPrefix(c.Err(), "MOVED") || redis.HasErrorPrefix(c.Err(), "ASK") {
				c.SetErr(nil)
				_ = w.client.Process(ctx, c) // which follows; the answer is in c
				o.unconfirmed(parts, errors.New("redis: the key has moved to another master"))
				w.cluster.ReloadState(ctx)
			}
		}
	}
	return err
}

// sender is a client, of one server or of a Cluster.
type sender interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// execute sends commands in one pipeline, or without a pipeline if there is only one.
func execute(ctx context.Context, client sender, all []*redis.Cmd) error {
	if len(all) == 1 {
		return client.Process(ctx, all[0])
	}
	pipe := client.Pipeline()
	for _, c := range all {
		_ = pipe.Process(ctx, c) // only queues it
	}
	_, err := pipe.Exec(ctx)
	return err
}

// unconfirmed notes why some parts are not confirmed, if they are not.
func (o *outgoing) unconfirmed(parts []int, why error) {
	for _, i := range parts {
		o.answers[i].unconfirmed = why
	}
}

// confirmed returns why a session's replicas are not enough, by a WAIT without a write, or what the server says to that.
func (s *session) confirmed(ctx context.Context) error {
	w, ok := s.calls.wire.(*clientWire)
	if !ok || w.replicas == nil {
		return nil
	}
	_, err := kit.Run(ctx, s.Life, s.timeout, func(ctx context.Context) (struct{}, error) {
		wait := w.replicas.wait(ctx)
		_ = w.client.Process(ctx, wait) // the error is in wait
		return struct{}{}, w.replicas.judge(wait)
	})
	return missing("wait", classify(err))
}

// given returns why a grant does not count.
func (r *reply) given() error {
	if r.unconfirmed == nil {
		return nil
	}
	return &driver.RefusedError{Err: r.unconfirmed}
}
