package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Inspect reports the state of a key.
func (s *session) Inspect(ctx context.Context, key string) (driver.State, error) {
	if err := s.Enter(); err != nil {
		return driver.State{}, err
	}
	defer s.Leave()
	c := s.askTwice(ctx, s.calls, []command{{script: &protocol.Inspect, key: s.name(key)}}, func(value any) bool {
		r, err := protocol.ParseInspect(value)
		return err == nil && !r.Held
	})[0]
	if s.sharesKeys() && isOverwritten(c.reply.err) {
		return driver.State{Held: true}, nil // by somebody else's library
	}
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
			Origin: originOf(h.Taker),
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
		oust := command{script: &protocol.Oust, key: s.name(key), args: protocol.OustArgs{UpTo: upTo}.Args()}
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
