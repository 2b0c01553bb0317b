package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	s.listener.ensure()
	p := s.resume(r)
	g, err := p.run(ctx)
	p.cleanUp(err)
	return g, err
}

// resume returns the place that Begin has parked, or a new one.
func (s *session) resume(r driver.Request) *place {
	if p := s.claims.resume(r.Owner); p != nil {
		return p
	}
	p := s.newPlace(r, s.name(r.Key), time.Now())
	if r.Replace != nil {
		p.replaces = s.claims.releaseAsked(r.Replace.Owner, p.began)
	}
	p.prepareToWait()
	p.burnt = !s.claims.add(p)
	return p
}

// run sends requests until the lease is granted or cannot be.
func (p *place) run(ctx context.Context) (driver.Grant, error) {
	if err := p.s.check(p.r); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	if p.burnt {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		if p.givenUp(now) {
			return driver.Grant{}, silence(p.s.timeout)
		}
		if p.mayAsk() && !p.next.After(now) {
			c := p.request(now)
			c.done = p.receive
			p.s.calls.send(c)
		}
		timer.Reset(p.nextLook().Sub(now))

		var g *driver.Grant
		var err error
		select {
		case c := <-p.answers:
			g, err = p.answer(ctx, c)
		case <-p.wake:
			g, err = p.takeNotes(ctx)
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.s.Closing:
			err = driver.ErrClosed
		}
		switch {
		case err != nil:
			return driver.Grant{}, err
		case g != nil:
			return *g, nil
		}
	}
}

func (s *session) check(r driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("redis: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("redis: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("redis: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("redis: the lease to replace is of another key")}
	case s.sharesKeys() && r.Mode != driver.Exclusive:
		return &driver.PermanentError{Err: errors.New("redis: a key of WithKeys is locked exclusively only")}
	case s.sharesKeys() && s.name(r.Key) == "":
		return errName
	}
	return nil
}

// mayTake reports whether the place begins with Take: nobody shares the key, and as far as this
// process knows nobody else wants it.
func (p *place) mayTake(now time.Time) bool {
	return p.s.sharesKeys() || p.r.Mode == driver.Exclusive && !p.refused && !p.s.busy.lately(p.key, now)
}

// request returns the next request. The caller sends it at once.
func (p *place) request(now time.Time) *call {
	key := p.key
	rq := &p.firstRequest
	if rq.script != nil {
		rq = new(request)
	}
	rq.until = now.Add(p.s.timeout)
	rq.creates = !p.known && !p.held
	switch old := p.r.Replace; {
	case p.held: // all but the token
		rq.command = command{key: key}
	case old != nil && !p.known && !p.s.sharesKeys():
		rq.endsReplaced = true
		next := &protocol.Next{
			Owner: p.id.Owner, Channel: p.s.channel, Length: p.r.TTL, PlaceTTL: p.placeTTL,
			Mode: p.r.Mode, Limit: p.r.Limit, Trace: p.r.Trace,
		}
		rq.command = endCommand(key, protocol.EndArgs{Owner: old.Owner, Bury: p.replaces.copies, Next: next})
		rq.grants = true
	default:
		after := p.r.After
		if old != nil {
			after = old // what became of it the cleaner finds out
		}
		if after != nil && !p.known {
			ending := p.s.claims.releaseAsked(after.Owner, now).ending(*after)
			rq.before = &call{command: endCommand(key, ending), done: func(*call) {}}
		}
		if rq.takes = !p.known && p.mayTake(now); rq.takes {
			take := protocol.TakeArgs{Owner: p.id.Owner, Channel: p.s.channel, Length: p.r.TTL, Trace: p.r.Trace}
			rq.command = command{script: &protocol.Take, key: key, args: take.Append(rq.room[:0]), grants: true}
			break
		}
		p.args.Create = !p.known
		rq.command = command{script: &protocol.Acquire, key: key, args: p.args.Append(rq.room[:0]), grants: true}
	}
	p.unanswered = append(p.unanswered, rq)
	// Refresh after a little less than a third of the place's TTL, so that two requests
	// may be lost. Each waiter has a time of its own.
	//
	// That is about a command a second of each waiter, also of a candidate who waits for days.
	// The protocol would bear less, as each entry has its own E, and callers would not. Every n
	// seconds instead of one:
	//
	//	                                                 1 s    5 s   10 s
	//	a push is lost: the granted waiter hears of it in  1 s    5 s   10 s    Capabilities.Wake
	//	the granted waiter is dead: the next one waits     3 s   15 s   30 s    E, for each dead one in a row
	//	commands of 100 candidates, in a second            110     22     11
	//
	// A push is lost without a sign of it, so that nothing but a request of its own tells a
	// waiter that it was granted the key. To have waited for long makes neither less likely, and
	// who waits as a standby is there for a quick hand-over.
	p.next = now.Add(time.Duration((0.28 + 0.04*p.s.jitter()) * float64(p.placeTTL)))
	return &rq.call
}

// receive passes an answer to Acquire. If Acquire has returned, it ends the owner again.
func (p *place) receive(c *call) {
	p.answers <- c
	if p.abandoned.Load() {
		p.endLate()
	}
}

// cleanUp gives up what is left when Begin or Acquire returns err: requests under way, the lease
// to replace if it has not ended, and after an error the owner.
func (p *place) cleanUp(err error) {
	creating := false
	for _, rq := range p.unanswered {
		if !rq.withdraw() {
			p.sent = true
			creating = creating || rq.creates
		}
	}
	p.copies = p.copies || creating
	if old := p.r.Replace; old != nil {
		p.s.claims.forget(old.Owner)
		if !p.replaced {
			p.s.cleaner.owe(p.key, protocol.EndArgs{Owner: old.Owner, Bury: p.replaces.copies}, p.r.TTL, 0)
		}
	}
	if err != nil {
		p.s.claims.forget(p.id.Owner)
		if p.sent && !p.leftNothing {
			p.end(creating)
		}
	}
}

// end tells the cleaner to end the owner. If a request that creates the place is under way,
// an ending on another connection may overtake it, and the place would stay in the queue
// until it expires. So the ending waits for the usual time of an answer. If the answer
// comes later than that, the owner is ended again.
func (p *place) end(creating bool) {
	if !creating {
		p.owe(0)
		return
	}
	p.owe(firstPause)
	p.s.cleaner.owed.Add()
	p.abandoned.Store(true)
	if len(p.answers) > 0 { // before somebody could know that Acquire has returned
		p.endLate()
	}
}

// endLate ends an owner whose creating request was answered after Acquire had returned.
func (p *place) endLate() {
	if !p.endedLate.Swap(true) {
		p.owe(0)
		p.s.cleaner.owed.Done()
	}
}

// owe tells the cleaner to end the owner.
func (p *place) owe(after time.Duration) {
	p.s.cleaner.owe(p.key, protocol.EndArgs{Owner: p.id.Owner, Bury: p.copies && !p.s.sharesKeys()}, p.r.TTL, after)
}

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
