package redislock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// session is one engine's session at the server.
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
	sending sync.WaitGroup // the lanes' workers
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
	return &lanes{wire: s.wire, newLane: func() *lane {
		return &lane{wire: s.wire, ctx: s.Ctx, workers: &s.sending, width: width, maxWidth: most, timeout: s.timeout, created: time.Now()}
	}}
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

// Oust ends the leases of all owners with tokens up to upTo.
func (s *session) Oust(ctx context.Context, key string, upTo int64) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	more := true
	for more { // a long queue may take several runs
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
