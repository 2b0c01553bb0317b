package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

var _ driver.Prompt = (*session)(nil)

// Begin sends the first request of an acquisition. If done is false, the engine calls Acquire,
// which goes on from there.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if s.check(r) != nil || s.Enter() != nil {
		return g, false, nil
	}
	defer s.Leave()
	key := protocol.Key(r.Key)
	l := s.calls.quickLane(key, now)
	if l == nil {
		return g, false, nil
	}
	s.listener.ensure()
	p := s.newPlace(r, key, now)
	s.claims.add(p)
	c := p.request(now)
	l.exchange(c, now)

	granted, err := p.begun(c)
	if granted == nil && err == nil {
		s.claims.park(p)
		return g, false, nil
	}
	p.cleanUp(err)
	if err != nil {
		return g, true, err
	}
	g = *granted
	s.places.Put(p)
	return g, true, nil
}

// begun handles the answer to the first request. If it returns neither a grant nor an error,
// Acquire goes on with the place.
func (p *place) begun(c *call) (*driver.Grant, error) {
	if c.reply.err != nil {
		p.answeredRequest(c)
		p.sent, p.next = true, time.Now()
		return nil, nil
	}
	return p.answer(context.Background(), c)
}

// End sends the release of one lease. If done is false, the engine calls Release for it.
func (s *session) End(e driver.Ending, now time.Time) (done bool, err error) {
	if s.Enter() != nil {
		return false, nil
	}
	defer s.Leave()
	key := protocol.Key(e.Key)
	l := s.calls.quickLane(key, now)
	if l == nil {
		return false, nil
	}
	asked := s.claims.releaseAsked(e.Owner, now)
	end := s.newEnding(key, protocol.EndArgs{Owner: e.Owner, Keep: e.Keep})
	l.exchange(&end.call, now)
	if end.reply.err != nil || end.reply.misrouted && denied(end.reply.value) {
		return false, nil
	}
	err = s.released(e, asked, &end.call)
	s.endings.Put(end)
	return true, err
}

// ending is the call of End, with memory for its arguments.
type ending struct {
	call
	args protocol.EndArgs
	room [2]any // for the arguments
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
