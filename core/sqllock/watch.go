package sqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// watchAndListen starts the goroutines that look after the session's claims.
func (s *session) watchAndListen() {
	s.Start(s.watch)
	s.Start(s.sweepAtTimes)
	if s.source != nil {
		s.Start(s.listen)
	}
}

// watch looks at the session's claims as long as it has any, and keeps its places.
func (s *session) watch() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	last, refreshed := time.Now(), time.Time{}
	pace := minPoll
	for {
		at, some, enrol, ends := s.claims.begin()
		every := s.poll
		if enrol > 0 { // somebody waits, and what follows a look takes its time too
			every = min(every-every/4, enrol/4)
			if s.source == nil {
				every = min(every, pace)
			}
		}
		now := time.Now()
		next := last.Add(every)
		if soon := driver.Later(ends, last.Add(minPoll)); enrol > 0 && !ends.IsZero() && soon.Before(next) {
			next = soon // as its holder may have died
		}
		switch left := next.Sub(now); {
		case !some:
			last = now
			tick.Stop()
		case left > 0:
			tick.Reset(left)
		default:
			last = now
			if enrol > 0 && now.Sub(refreshed) >= enrol/5 {
				refreshed = now
				s.refresh()
			}
			// A queue that moves is looked at more often than one that stands, but a
			// server that is busy is not kept so by looks.
			pace = pace * 3 / 2
			asked := time.Now()
			if s.look(at) {
				pace = minPoll
			}
			pace = min(max(pace, 4*time.Since(asked)), s.poll)
			continue
		}
		select {
		case <-tick.C:
		case <-s.claims.change:
		case <-s.Closing:
			return
		}
	}
}

// sweepAtTimes sweeps about once a minute, at other times in each process, while the
// session is used.
func (s *session) sweepAtTimes() {
	for {
		if !kit.Sleep(s.Open, time.Duration((0.5+rand.Float64())*float64(time.Minute))) {
			return
		}
		if s.claims.used.Swap(false) {
			_, _, _ = ask(s.Ctx, s, s.Closing, s.sweep) // the next one does what this did not
		}
	}
}

// refresh makes the session's places last.
func (s *session) refresh() {
	_, _, _ = ask(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) { // the next one is soon, and a place that is lost is found so
		_, err := s.db.ExecContext(ctx, s.q.refresh, s.name[:])
		return struct{}{}, err
	})
}

// seen is what a look has found of a claim.
type seen struct {
	id    driver.ID
	state state
	asked int64
	ahead int64 // how many wait before it; if it holds, how many wait
	may   bool  // it waits, and may hold

	// ends is how long until the first lease of the key does, unless it is renewed; 0 if
	// there is none.
	ends time.Duration
}

// look asks the server for the session's claims in one statement, and wakes or tells whom
// it concerns. It reports whether a queue has moved.
func (s *session) look(at uint64) (moved bool) {
	c := &s.claims
	c.mu.Lock()
	c.ends = time.Time{} // the answer says it, or comes before what is expected meanwhile
	c.mu.Unlock()
	all, _, err := ask(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (map[driver.Owner]seen, error) {
		return s.find(ctx)
	})
	if err != nil {
		return false // the next one is soon
	}
	now := time.Now()
	var lost []driver.ID
	told := make(map[driver.ID]bool)
	c.mu.Lock()
	for o, m := range c.byOwner {
		f, ok := all[o]
		if ok && !m.held && m.ahead != f.ahead {
			m.ahead, moved = f.ahead, true
		}
		switch {
		case ok && !m.held && (f.may || f.state != waits):
			moved = true
			m.wake.Set()
		case ok && !m.held && f.ahead == 0 && f.ends > 0:
			c.expect(now.Add(f.ends + time.Millisecond))
		case ok && m.held && f.state == holds:
			waiting := f.ahead > 0
			if waiting != m.told || f.asked > m.asked {
				told[m.id] = waiting || f.asked > m.asked
				m.told, m.asked = waiting, max(m.asked, f.asked)
			}
		case ok || m.since > at:
		case !m.held:
			m.wake.Set() // its place is lost, as its next request says
		case m.first.IsZero():
			c.drop(o)
			lost = append(lost, m.id)
		}
	}
	c.mu.Unlock()
	for id, waiting := range told {
		s.sink.Contended(id, waiting)
	}
	for _, id := range lost {
		s.sink.Lost(id, errTaken)
	}
	return moved
}

func (s *session) find(ctx context.Context) (map[driver.Owner]seen, error) {
	rows, err := s.db.QueryContext(ctx, s.q.look, s.name[:])
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // its error is that of Err
	all := make(map[driver.Owner]seen)
	for rows.Next() {
		var key, owner []byte
		var what, room, held, least, ends int64
		var f seen
		if err := rows.Scan(&key, &owner, &what, &room, &f.asked, &f.ahead, &held, &least, &ends); err != nil {
			return nil, err
		}
		f.id, f.state = identify(key, owner), state(what)
		f.ends = time.Duration(ends) * time.Microsecond
		f.may = f.ahead == 0 && (least == 0 || held < least) && (room == 0 || held < room)
		all[f.id.Owner] = f
	}
	return all, rows.Err()
}
