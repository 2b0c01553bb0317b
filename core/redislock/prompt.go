package redislock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

var _ driver.PromptAll = (*session)(nil)

// Begin sends the first request of an acquisition. If done is false, the engine calls Acquire,
// which goes on from there.
func (s *session) Begin(r driver.Request, now time.Time) (g driver.Grant, done bool, err error) {
	if s.check(r) != nil || s.Enter() != nil {
		return g, false, nil
	}
	defer s.Leave()
	key := s.name(r.Key)
	l := s.calls.quickLane(key, now)
	if l == nil {
		return g, false, nil
	}
	s.listener.ensure()
	p := s.newPlace(r, key, now)
	if !s.claims.add(p) {
		return g, true, driver.ErrPlaceLost
	}
	c := p.request(now)
	l.exchange(c, now)
	if c.reply.err == nil && c.script == &protocol.Take && c.reply.value == int64(0) {
		if _, err := p.answer(context.Background(), c); err != nil || !p.refused {
			return p.over(nil, err)
		}
		now = time.Now()
		c = p.request(now)
		l.exchange(c, now)
	}
	return p.result(c)
}

// result returns what Begin returns after the exchange of the first request.
func (p *place) result(c *call) (g driver.Grant, done bool, err error) {
	return p.over(p.begun(c))
}

// over returns what Begin returns for a grant or an error; without either Acquire goes on.
func (p *place) over(granted *driver.Grant, err error) (g driver.Grant, done bool, _ error) {
	if granted == nil && err == nil {
		p.s.claims.park(p)
		return g, false, nil
	}
	p.cleanUp(err)
	if err != nil {
		return g, true, err
	}
	g = *granted
	p.s.places.Put(p)
	return g, true, nil
}

// BeginAll sends the first requests of several acquisitions, in one batch for each server. If there
// is one server, and it is quick, BeginAll waits for the replies. Otherwise Acquire does.
func (s *session) BeginAll(rs []driver.Request, now time.Time, begun []driver.Begun) {
	if s.Enter() != nil {
		clear(begun)
		return
	}
	defer s.Leave()
	s.listener.ensure()
	places, calls := make([]*place, 0, len(rs)), make([]*call, 0, len(rs))
	at := make([]int, 0, len(rs))
	for i, r := range rs {
		begun[i] = driver.Begun{}
		if s.check(r) == nil {
			p := s.newPlace(r, s.name(r.Key), now)
			places, at = append(places, p), append(at, i)
		}
	}
	l := s.onlyLane(places, now)
	asked := at[:0]
	for n, p := range places {
		if l == nil {
			p.prepareToWait()
			p.parked = true
		}
		if !s.claims.add(p) {
			begun[at[n]] = driver.Begun{Done: true, Err: driver.ErrPlaceLost}
			continue
		}
		places[len(asked)], asked = p, append(asked, at[n])
		c := p.request(now)
		if c.lane = l; l == nil {
			c.done = p.receive
		}
		calls = append(calls, c)
	}
	if l == nil {
		s.calls.send(calls...)
		return
	}
	l.exchangeAll(calls, now)
	for n, i := range asked {
		b := &begun[i]
		b.Grant, b.Done, b.Err = places[n].result(calls[n])
	}
}

// onlyLane returns the lane of all places if there is one, and its server is quick; otherwise nil.
func (s *session) onlyLane(places []*place, now time.Time) *lane {
	if len(places) == 0 {
		return nil
	}
	l := s.calls.quickLane(places[0].key, now)
	for _, p := range places[1:] {
		if l == nil || s.calls.quickLane(p.key, now) != l {
			return nil
		}
	}
	return l
}

// begun handles the answer to the first request. If it returns neither a grant nor an error,
// Acquire goes on with the place.
func (p *place) begun(c *call) (*driver.Grant, error) {
	if c.reply.err != nil {
		rq := p.answeredRequest(c)
		p.copies = p.copies || rq.creates && !c.reply.sentOnce
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
