package sqllock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// watchAndListen starts the goroutines that look after the session's claims.
func (s *session) watchAndListen() {
	s.start(s.watch)
	if s.source != nil {
		s.start(s.listen)
	}
}

// watch looks at the session's claims as long as it has any, keeps its places, and sweeps
// from time to time while the session is used.
func (s *session) watch() {
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	var refreshed time.Time
	sweep := time.Now().Add(sweepPause())
	used := false
	for {
		next := time.Hour
		at, any, enrol := s.claims.begin()
		if any {
			used = true
			next = s.poll
			if enrol > 0 {
				next = min(next, enrol/4)
				if time.Since(refreshed) >= enrol/5 {
					refreshed = time.Now()
					s.refresh()
				}
			}
			s.look(at)
		}
		if used {
			if time.Now().After(sweep) {
				_, _, _ = ask(s.ctx, s, s.closing, s.sweep) // the next one does what this did not
				sweep, used = time.Now().Add(sweepPause()), false
			}
			next = min(next, time.Until(sweep))
		}
		tick.Reset(max(next, minPoll))
		if any {
			select {
			case <-tick.C:
			case <-s.closing:
				return
			}
			continue
		}
		select {
		case <-tick.C:
		case <-s.claims.change:
		case <-s.closing:
			return
		}
	}
}

// sweepPause is between half a minute and a minute and a half, different in each process.
func sweepPause() time.Duration {
	return time.Duration((0.5 + rand.Float64()) * float64(time.Minute))
}

// refresh makes the session's places last.
func (s *session) refresh() {
	_, _, _ = ask(s.ctx, s, s.closing, func(ctx context.Context, _ *attempt) (struct{}, error) { // the next one is soon, and a place that is lost is found so
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
}

// look asks the server for the session's claims in one statement, and wakes or tells whom
// it concerns.
func (s *session) look(at uint64) {
	all, _, err := ask(s.ctx, s, s.closing, func(ctx context.Context, _ *attempt) (map[driver.Owner]seen, error) {
		return s.find(ctx)
	})
	if err != nil {
		return // the next one is soon
	}
	var lost []driver.ID
	told := make(map[driver.ID]bool)
	c := &s.claims
	c.mu.Lock()
	for o, m := range c.byOwner {
		f, ok := all[o]
		switch {
		case ok && !m.held && (f.may || f.state != waits):
			m.nudge()
		case ok && m.held && f.state == holds:
			waiting := f.ahead > 0
			if waiting != m.told || f.asked > m.asked {
				told[m.id] = waiting || f.asked > m.asked
				m.told, m.asked = waiting, max(m.asked, f.asked)
			}
		case ok || m.since > at:
		case !m.held:
			m.nudge() // its place is lost, as its next request says
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
		var what, room, held, least int64
		var f seen
		if err := rows.Scan(&key, &owner, &what, &room, &f.asked, &f.ahead, &held, &least); err != nil {
			return nil, err
		}
		f.id, f.state = identify(key, owner), state(what)
		f.may = f.ahead == 0 && (least == 0 || held < least) && (room == 0 || held < room)
		all[f.id.Owner] = f
	}
	return all, rows.Err()
}
