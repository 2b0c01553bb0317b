package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// session is one engine's connection to the server.
type session struct {
	config
	sink    driver.Sink
	timeout time.Duration // of one attempt
	wire    wire
	channel string // of this session's pushes

	calls    *lanes // acquisitions and endings
	renewals *lanes // apart, so that a burst of acquisitions cannot starve them
	claims   claims
	cleaner  *cleaner
	listener *listener

	places  sync.Pool // of *place, for Begin
	endings sync.Pool // of *ending, for End

	*kit.Life
	sending sync.WaitGroup // the lanes' goroutines
}

func newSession(c config, dc driver.Config, w wire) *session {
	s := &session{
		config:  c,
		sink:    dc.Sink,
		timeout: dc.StoreTimeout,
		wire:    w,
		channel: c.channel(),
		Life:    kit.NewLife("redis", "the server"),
	}
	s.calls = s.newLanes(c.connections, w.connections())
	s.renewals = s.newLanes(2, 2) // one dead connection must not hold up all leases
	s.claims.init()
	s.cleaner = newCleaner(s)
	s.listener = newListener(s)
	return s
}

func (s *session) newLanes(width, most int) *lanes {
	return &lanes{wire: s.wire, open: func() *lane {
		return &lane{wire: s.wire, ctx: s.Ctx, workers: &s.sending, width: width, most: most, timeout: s.timeout, born: time.Now()}
	}}
}

// ask sends commands on a lane and waits for their replies, for one attempt's
// time and no longer than ctx. It returns one call for each command: its own
// copy, whose reply is an error if there is no answer.
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
	var moved <-chan struct{}
	if l == s.renewals {
		moved = s.listener.moved() // before they are sent
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
		case <-moved:
			// What is under way may have gone to a server that is none any more. The first
			// answer of the two counts.
			moved = nil
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
			calls[i] = &call{command: c.command, reply: reply{err: err, once: never}}
		}
	}
	return calls
}

// askTwice is ask, and asks once more for what was denied by a server that may not
// have had the key. To believe it a second time is safe: it only gives a lease up.
func (s *session) askTwice(ctx context.Context, l *lanes, cmds []command, denied func(value any) bool) []*call {
	calls := s.ask(ctx, l, cmds...)
	var again []command
	var at []int
	for i, c := range calls {
		if c.reply.astray && denied(c.reply.value) {
			again, at = append(again, cmds[i]), append(at, i)
		}
	}
	if len(again) > 0 {
		for j, c := range s.ask(ctx, l, again...) {
			calls[at[j]] = c
		}
	}
	return calls
}

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	c := s.askTwice(ctx, s.calls, []command{{script: &protocol.Inspect, key: protocol.Key(key)}}, func(value any) bool {
		r, err := protocol.ParseInspect(value)
		return err == nil && !r.Held
	})[0]
	if c.reply.err != nil {
		return driver.State{}, c.reply.err
	}
	r, err := protocol.ParseInspect(c.reply.value)
	if err != nil {
		return driver.State{}, classify(err)
	}
	st := driver.State{Held: r.Held, Token: r.Token, Remaining: r.Left, Waiting: int(r.Waiting)}
	for _, h := range r.Holders {
		mode, limit := h.Mode()
		st.Holders = append(st.Holders, driver.Holder{
			Mode: mode, Limit: limit, Token: h.Token, Since: time.UnixMicro(h.Token), Remaining: h.Left, Kept: h.Kept,
		})
	}
	return st, nil
}

// Oust ends leases, whoever has them.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	more := true
	for more { // the queue is long and its first places are stale
		oust := command{script: &protocol.Oust, key: protocol.Key(key), args: protocol.OustArgs{UpTo: upTo}.Args()}
		c := s.askTwice(ctx, s.calls, []command{oust}, func(value any) bool {
			r, err := protocol.ParseOust(value)
			return err == nil && r.Ended == 0
		})[0]
		if c.reply.err != nil {
			return classify(c.reply.err)
		}
		r, err := protocol.ParseOust(c.reply.value)
		if err != nil {
			return classify(err)
		}
		more = r.More
	}
	return nil
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, s.cleaner.drain, func() {
		s.calls.close()
		s.renewals.close()
		s.sending.Wait()
	})
}
